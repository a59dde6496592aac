from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from pmtrans.data.batch import Batch
from pmtrans.data.domain import Domain
from pmtrans.errors import StopReportedByMainProcess, TrainingError
from pmtrans.training.failures import FiniteGuard

BATCH = Batch(torch.zeros(2, 3, 4, 4), torch.tensor([0, 1]), torch.tensor([2, 0]), torch.zeros(2, 3, 4, 4), torch.tensor([1, 0]))  # fmt: skip  # noqa: E501
DOMAINS = (Domain(Path("s"), ("s0", "s1", "s2")), Domain(Path("t"), ("t0", "t1")))
FINE = {"loss": torch.tensor(1.0), "gradient_norm": torch.tensor(2.0)}


@pytest.mark.parametrize("name", ["loss", "gradient_norm"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_stops_the_run(name: str, value: float, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="not finite at step 7"):
        FiniteGuard(tmp_path, *DOMAINS).check(7, [BATCH], {**FINE, name: torch.tensor(value)}, {"lr": 0.1})
    capture = json.loads((tmp_path / "not-finite-step-00000007.json").read_text())
    assert capture["values"][name] == repr(value)
    assert capture["source_images"] == ["s2", "s0"]
    assert capture["target_images"] == ["t1", "t0"]


def test_a_gradient_of_the_ascending_player_counts_too(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="not finite"):
        FiniteGuard(tmp_path, *DOMAINS).check(7, [BATCH], FINE, {}, [torch.tensor([0.0, float("nan")])])


def test_numbers_pass_and_leave_no_file(tmp_path: Path) -> None:
    FiniteGuard(tmp_path, *DOMAINS).check(7, [BATCH], FINE, {}, [torch.tensor([0.0, 1e30])])
    assert list(tmp_path.iterdir()) == []


def test_the_reason_is_said_though_the_capture_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TrainingError, match="not finite"):
        FiniteGuard(tmp_path / "file", *DOMAINS).check(7, [BATCH], {**FINE, "loss": torch.tensor(float("nan"))}, {})


def test_only_the_main_process_writes_the_capture(tmp_path: Path) -> None:
    with pytest.raises(StopReportedByMainProcess):
        FiniteGuard(tmp_path, *DOMAINS, is_main=False).check(7, [BATCH], {**FINE, "loss": torch.tensor(torch.inf)}, {})
    assert list(tmp_path.iterdir()) == []
