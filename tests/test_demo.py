"""The demo's own settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pmtrans.demo import demo_config, known_balance

ROOT = Path("digits")


def labels_of(overrides: list[str]) -> tuple[Any, Any]:
    settings = [*known_balance("pmtrans", overrides), *overrides]
    method = demo_config(ROOT / "source", ROOT / "target", 0, "pmtrans", settings).method
    return method["pseudo_labels"], method["prior"]


@pytest.mark.parametrize(
    ("overrides", "labels"),
    [
        ([], ("transport", "uniform")),
        (["train.epochs=4"], ("transport", "uniform")),
        (["method.prior=estimated"], ("transport", "estimated")),
        (["method.pseudo_labels=kmeans"], ("kmeans", "uniform")),
        (["method.preset=paper"], ("kmeans", "estimated")),
    ],
)
def test_pmtrans_is_told_that_digits_are_balanced_and_the_user_has_the_last_word(
    overrides: list[str], labels: tuple[str, str]
) -> None:
    assert labels_of(overrides) == labels


def test_other_methods_are_not_told() -> None:
    assert known_balance("bnm", []) == []
