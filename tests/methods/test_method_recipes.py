"""Recipes of the methods that PMTrans is compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from pmtrans.methods import METHODS
from pmtrans.settings import load_config

RECIPES = sorted((Path(__file__).parents[2] / "recipes" / "methods").glob("*.yaml"))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_valid_names_its_method_and_tells_its_command(recipe: Path) -> None:
    config = load_config(recipe)
    assert config.method["name"] == recipe.stem
    assert config.train.warmup_steps == (500 if recipe.stem == "tvt" else 0)  # as published, not our default
    header = " ".join(line.lstrip("# ") for line in recipe.read_text().splitlines() if line.startswith("#"))
    assert f"--recipe recipes/methods/{recipe.name}" in header
    assert METHODS[recipe.stem].method.title in header


def test_every_method_that_pmtrans_is_compared_with_has_its_recipe() -> None:
    assert {recipe.stem for recipe in RECIPES} == METHODS.keys() - {"pmtrans", "source_only"}
