"""docs/methods.md: no method without its paragraph, formula and cost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pmtrans.methods import METHODS

PAGE = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### .*?\(`([\w.]+)`\)\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_a_paragraph_a_formula_and_a_line_of_cost(name: str) -> None:
    words, formula, cost = (part.strip("\n") for part in SECTIONS[name].strip().split("\n\n"))
    assert len(words.split()) > 12
    assert formula.startswith("    ")
    assert cost.startswith("Cost: ")


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("source_only", "source_free")])
def test_the_page_says_how_a_method_differs_from_its_official_code(name: str) -> None:
    table = PAGE.partition("## Differences from the official code")[2].partition("\n## ")[0]
    first = [row.split("|")[1] for row in table.splitlines() if row.startswith("| ")]
    title = METHODS[name].method.title
    assert any(title in cell.replace(" (`reference`)", "").replace(",", " ").split() for cell in first), title
