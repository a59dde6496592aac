"""``summary.json``: what a run wrote is read as it was written; anything else is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pmtrans.config import Config
from pmtrans.errors import RunError
from pmtrans.report.material import Material
from pmtrans.report.page import render_page
from pmtrans.report.sections.cautions import cautions
from pmtrans.report.sections.headline import headline
from pmtrans.report.sections.sources import sources
from pmtrans.report.sections.target_labels import target_labels
from pmtrans.run.summary import read_summary

INTERVAL = {"accuracy": 0.7, "low": -1e-17, "high": 0.9}
ESTIMATE = {**INTERVAL, "level": 0.9, "parts": {"atc": 0.6}}
EVALUATION = {"step": 3, "score.arbitration": 0.1, "oracle_accuracy": 0.5, "oracle_per_class_mean": 0.5, "warnings": []}
WRITTEN: dict[str, Any] = {
    "method": "pmtrans", "probe": 0.5, "source_only": 0.6, "adapted": 0.7, "shipped": "adapted",
    "shipped_reason": "ahead", "last": 0.7, "oracle": 0.75, "seconds": 12.5, "selected_step": 3, "selection": "by bnm",
    "estimate": ESTIMATE, "estimates": {"probe": ESTIMATE, "source_only": ESTIMATE, "adapted": ESTIMATE},
    "verdict": "helped", "verdict_reason": "by much", "compared_with": "source_only",
    "evaluations": {"probe": EVALUATION, "source_only": None, "adapted": EVALUATION},
    "target_labels": {
        "trained": 5, "kept": 20, "level": 0.95,
        "accuracy": {"probe": INTERVAL, "source_only": None, "adapted": INTERVAL},
        "before": {"run": "first", **INTERVAL}, "probe_without": {"kept_labels_accuracy": 0.5, "oracle_accuracy": 0.5},
    },
    "sources": {
        "shop": {
            "images": 8, "held_out": 2, "accuracy": {"probe": 1, "source_only": None, "adapted": 0.5},
            "contribution": {"without": {"estimate": 0.4}, "change": {"estimate": -0.1, "oracle_accuracy": -0.2}},
        },
        "street": {"images": 8, "held_out": 2, "accuracy": {}, "contribution": None},
    },
    "given": None,
    "old": {"hall": {"measure": "accuracy", "images": 9, "given": 0.9, "adapted": None}},
    "verdict_probability": 0.9, "target_prior": {"ant": 1.0}, "unknown_share": 0.1,
    "target_prior_details": {"level": 0.9, "low": {"ant": 1.0}, "high": {"ant": 1.0}, "bbse": None, "mlls": None},
}  # fmt: skip

FORGED: list[tuple[str, Any]] = [
    ("shipped", "other"), ("compared_with", "other"), ("compared_with", "adapted"), ("verdict", "<b>"),
    ("adapted", 1e308), ("adapted", True), ("seconds", float("nan")), ("selected_step", 10**30),
    ("estimate", {"accuracy": "x"}), ("estimate", {**ESTIMATE, "low": float("nan")}),
    ("evaluations", {"adapted": 3}), ("evaluations", {"adapted": {"oracle_accuracy": "x"}}),
    ("evaluations", {"adapted": {"score.arbitration": "x"}}),
    ("sources", {"a": 1}), ("sources", {"images": {"a": 1}}), ("target_labels", {"a": None}),
    ("target_labels", {"accuracy": 1}), ("old", {"a": {}}), ("old", {"a": 3}),
    ("target_prior_details", {"low": {"ant": "x"}}), ("unknown_share", 2.0), ("verdict_probability", 5.0),
]  # fmt: skip


def write(folder: Path, **changes: Any) -> Path:
    path = folder / "summary.json"
    path.write_text(json.dumps({**WRITTEN, **changes}), encoding="utf-8")
    return path


def test_what_a_run_wrote_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_summary(write(tmp_path)).to_json() == WRITTEN


@pytest.mark.parametrize(("name", "value"), FORGED)
def test_a_forged_field_is_one_line(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(RunError, match=r"summary\.json' cannot be read: remove it") as caught:
        read_summary(write(tmp_path, **{name: value}))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [{}, {"estimates": {}}, {"evaluations": {}}, {"given": "elsewhere", "shipped": "probe", "compared_with": "probe"}],
)
def test_every_summary_that_can_be_read_has_a_page(tmp_path: Path, changes: dict[str, Any]) -> None:
    summary = read_summary(write(tmp_path, **changes))
    material = Material(tmp_path, Config(), [], [], summary, None, None, None, {}, ())
    sections = [make(material) for make in (headline, cautions, sources, target_labels)]
    assert "points against" in render_page("run", [section for section in sections if section is not None])
