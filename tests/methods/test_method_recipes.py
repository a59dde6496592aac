"""recipes/methods: each is its method's own, with keys that exist and a command that names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pmtrans.config import load_config
from pmtrans.methods import METHODS

RECIPES = sorted((Path(__file__).parents[2] / "recipes" / "methods").glob("*.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_valid_and_says_how_to_run_it(path: Path) -> None:
    config = load_config(path)
    assert config.method["name"] == path.stem
    assert path.stem in METHODS
    text = path.read_text()
    assert f"--recipe recipes/methods/{path.name}" in text
    assert max(len(line) for line in text.splitlines()) <= 120
