"""The recipes of the benchmarks: the paper's hyper-parameters, and headers that quote the paper rightly."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from pmtrans.bench.paper import paper_row

RECIPES = Path(__file__).parents[2] / "recipes"
EPOCHS = {"swin": 50, "deit": 60, "vit": 100}
CASES = [
    *((benchmark, family) for benchmark in ("office-31", "office-home", "visda-2017") for family in EPOCHS),
    ("domainnet", "swin"),
]


@pytest.mark.parametrize(("benchmark", "family"), CASES)
def test_a_recipe_has_the_hyper_parameters_of_the_paper(benchmark: str, family: str) -> None:
    recipe = yaml.safe_load((RECIPES / benchmark / f"{family}.yaml").read_text())
    train = recipe["train"]
    assert recipe["backbone"]["name"].startswith(f"{family}_base_")
    assert recipe["method"] == {"name": "pmtrans", "preset": "paper"}
    assert train["epochs"] == EPOCHS[family]
    assert train["batch_size"] == 32
    assert train["weight_decay"] == 0.05
    assert train["warmup_steps"] == 0
    assert train["learning_rate"] == (1e-6 if benchmark == "visda-2017" else 5e-6)
    assert train["learning_rate"] * train["head_ratio"] == pytest.approx(1e-5)


@pytest.mark.parametrize(("benchmark", "family"), CASES)
def test_the_header_of_a_recipe_names_its_file_and_quotes_the_paper(benchmark: str, family: str) -> None:
    text = (RECIPES / benchmark / f"{family}.yaml").read_text()
    header = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    assert f"--recipe recipes/{benchmark}/{family}.yaml" in header
    row = paper_row(benchmark, "pmtrans", family)
    assert row is not None
    expected = {**row.cells, **row.margins, "average": row.stated_average}
    before_baseline = header.split("Source only")[0]
    quoted = {name: float(value) for name, value in re.findall(r"([*\w]+) (\d+\.\d)\b", before_baseline)}
    columns = {f"*2{name}" for name in ("clp", "inf", "pnt", "qdr", "rel", "skt")}
    assert quoted.keys() == (columns if benchmark == "domainnet" else row.cells.keys()) | {"average"}
    assert quoted == {name: expected[name] for name in quoted}
