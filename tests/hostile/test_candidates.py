"""A candidate that was changed between its evaluation and the selection is never shipped."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor

from made_up_evidence import EvidenceMaker, made_up  # noqa: F401  (a fixture)
from pmtrans.errors import RunError
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.judge import EVIDENCE, WEIGHTS, Judge


@dataclass
class Shown:
    features_MF: Tensor
    logits_MK: Tensor


@dataclass
class Evaluated:
    step: int
    target: Shown
    holdout: Shown
    source_sample: None = None
    ground: None = None


def evaluated(step: int, evidence: Evidence) -> Evaluated:
    holdout = Shown(evidence.source_features_ND, evidence.source_logits_NK)
    return Evaluated(step, Shown(evidence.target_features_MD, evidence.target_logits_MK), holdout)


@pytest.fixture
def judge(tmp_path: Path, made_up: EvidenceMaker) -> Judge:  # noqa: F811
    """Three evaluations, all kept, as a checkpoint would give them back."""
    evidence = made_up()
    labels = tuple(evidence.source_labels_N.tolist())
    weights = {"head.weight": torch.arange(6.0).reshape(2, 3), "head.bias": torch.zeros(2)}
    classes = tuple(f"class {k}" for k in range(evidence.classes))
    made = Judge(tmp_path, labels, classes, lambda: weights, lambda _: None, None, 4, [])
    for step in (2, 4, 6):
        weights["head.bias"] = torch.full((2,), float(step))
        made(evaluated(step, made_up(seed=step - 2, sharpness=step)))
    return made


def flip(folder: Path) -> None:
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[-1] ^= 1
    (folder / WEIGHTS).write_bytes(data)


def rewrite(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        weights = {name: value.clone() for name, value in safetensors.torch.load_file(folder / WEIGHTS).items()}
        change(weights)
        safetensors.torch.save_file(weights, folder / WEIGHTS)

    return act


def another_step(folder: Path) -> None:
    other = next(one for one in sorted(folder.parent.glob("step-*")) if one != folder)
    shutil.copyfile(other / WEIGHTS, folder / WEIGHTS)


CHANGES: dict[str, Callable[[Path], object]] = {
    "one bit": flip,
    "zeros": rewrite(lambda weights: [value.zero_() for value in weights.values()]),
    "another step's weights": another_step,
    "a missing tensor": rewrite(lambda weights: weights.pop("head.bias")),
    "an extra tensor": rewrite(lambda weights: weights.update(more=torch.zeros(1))),
    "another shape": rewrite(lambda weights: weights.update({"head.bias": torch.zeros(7)})),
    "no weights": lambda folder: (folder / WEIGHTS).unlink(),
    "no evidence": lambda folder: (folder / EVIDENCE).unlink(),
    "other evidence": lambda folder: safetensors.torch.save_file({"x": torch.zeros(1)}, folder / EVIDENCE),
    "no folder": shutil.rmtree,
}


def test_an_unchanged_candidate_is_selected_with_its_own_weights(judge: Judge) -> None:
    step, _, weights, _ = judge.select()
    assert weights["head.bias"].tolist() == [float(step)] * 2


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_candidate_is_refused_in_one_line(judge: Judge, change: str) -> None:
    step = judge.select()[0]
    CHANGES[change](judge.candidate(step))
    with pytest.raises(RunError, match=r"^The selected model .* cannot be used \(.*\): it was removed or changed; "):
        judge.select()


def test_a_candidate_without_a_recorded_checksum_is_refused(judge: Judge) -> None:
    judge.history[:] = [replace(judged, checksum=None) for judged in judge.history]
    with pytest.raises(RunError, match="its checksum does not match"):
        judge.select()
