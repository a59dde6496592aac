"""What a finished run says at its end, with and without target labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pmtrans.cli.ending import closing_lines, show_summary
from pmtrans.outcomes import Name
from pmtrans.run.summary import Summary

ESTIMATE = {"accuracy": 0.804, "low": 0.76, "high": 0.85, "parts": {}}
UNLABELLED = Summary(
    method="pmtrans", probe=None, source_only=None, adapted=None, shipped="adapted",
    shipped_reason="ahead of both others: about +5.0 points", last=None, oracle=None, seconds=60.0, selected_step=40,
    selection="the best", estimate=ESTIMATE, estimates={"probe": None, "source_only": None, "adapted": ESTIMATE},
    verdict="helped", verdict_reason="Neighbours side with the adapted model.", compared_with="source_only",
)  # fmt: skip


def test_without_labels_it_names_verdict_estimate_shipped_model_and_what_to_do_next() -> None:
    said = closing_lines(UNLABELLED, Path("runs/my phone"))
    assert said[0] == "Verdict, without labels: adaptation helped. Neighbours side with the adapted model."
    assert said[1] == "Shipped in model/: pmtrans (ahead of both others: about +5.0 points)."
    assert "estimated without labels: 80.4 %, between 76 and 85 % (right in nine of ten of the tasks" in said[2]
    steps = said[said.index("Next:") + 1 :]
    assert [step.split()[1] for step in steps] == ["report", "label-these", "predict"]
    assert "'runs/my phone'" in steps[0]  # a line that can be copied into a shell
    assert not any("Measured" in line for line in said)


def test_with_labels_it_adds_what_they_measure_and_asks_for_no_more_of_them() -> None:
    said = closing_lines(replace(UNLABELLED, probe=0.6, source_only=0.7, adapted=0.825), Path("run"))
    assert "Measured with the labels of the target, which chose nothing: 82.5 %." in said
    assert not any("label-these" in line for line in said)


def of_labels(shipped: Name, kept: int, accuracy: dict[str, float] | None, taken_over: dict[str, Any]) -> str:
    labels = {"trained": 33, "kept": kept, "accuracy": {shipped: accuracy}, "taken_over": taken_over, "before": None}
    said = closing_lines(replace(UNLABELLED, shipped=shipped, target_labels=labels), Path("run"))
    return next(line for line in said if ("target labels" in line and "33" in line) or "taken over" in line)


def test_target_labels_are_said_to_train_only_the_models_that_saw_them() -> None:
    measured = {"accuracy": 6 / 7, "low": 0.49, "high": 0.97}
    own = "33 target labels trained it; on the 7 that were kept it is 85.7 % right (49 to 97)."
    assert of_labels("adapted", 7, measured, {}) == own
    origin = {"source_only": {"run": "r0", "trained": 0}}
    assert of_labels("adapted", 7, measured, origin) == own
    assert of_labels("source_only", 7, measured, origin) == (
        "It was taken over from r0 and saw none of the 33 target labels; "
        "on the 7 that were kept it is 85.7 % right (49 to 97)."
    )
    assert of_labels("source_only", 7, measured, {"source_only": {"run": "r0", "trained": 20}}) == (
        "It was taken over from r0, where 20 target labels trained it; "
        "on the 7 that were kept it is 85.7 % right (49 to 97)."
    )


def test_labels_that_were_kept_are_not_denied_where_they_measured_nothing() -> None:
    assert of_labels("adapted", 0, None, {}) == "33 target labels trained it; none were kept for measuring."
    missing = of_labels("adapted", 7, None, {})
    assert missing == "33 target labels trained it; it was not measured on the 7 that were kept."


def test_where_adaptation_did_not_help_another_method_is_named() -> None:
    hurt = replace(UNLABELLED, verdict="hurt", shipped="source_only", shipped_reason="pmtrans is not ahead of it")
    said = closing_lines(hurt, Path("run"))
    assert "Shipped in model/: source only (pmtrans is not ahead of it)." in said
    assert any("train --recipe run/config.yaml --from run --method mcc --out run-mcc " in line for line in said)


def test_without_a_held_out_source_it_says_why_there_is_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    blind = replace(UNLABELLED, verdict=None, verdict_reason=None, estimate=None, estimates={})
    show_summary(blind, Path("run"))
    said = capsys.readouterr().out
    assert "No verdict. Nothing of the source was held out to judge with (data.holdout=0)." in said
    assert "Shipped in model/: pmtrans" in said
