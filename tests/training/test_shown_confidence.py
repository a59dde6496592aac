"""An easy hold-out is no reason to show a user more confidence in target images than the model itself has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import one_hot

from pmtrans.report.material import read_material
from pmtrans.report.sections.pictures import certainty
from pmtrans.run.folder import RunFolder
from pmtrans.run.model_folder import load_model
from pmtrans.selection.calibration import fit_temperature
from pmtrans.selection.evidence import Evidence
from pmtrans.settings import load_config
from pmtrans.training.finished import Finished, write_finished


def evidence(right: float) -> Evidence:
    """A model that is sure by 0.67 of every image and right on this share of the hold-out."""
    labels = torch.arange(60) % 3
    called = torch.where(torch.arange(60) < round(60 * right), labels, (labels + 1) % 3)
    logits = one_hot(called, 3) * torch.tensor(4.0).log()  # 4 / (4 + 1 + 1) = 0.67
    return Evidence(torch.eye(3)[labels], logits, labels, torch.eye(3)[labels], logits.clone())


@pytest.mark.parametrize("right", [1.0, 0.4])
def test_the_shipped_model_never_sharpens(tmp_path: Path, saved_model: Callable[..., Path], right: float) -> None:
    fitted = fit_temperature(evidence(right).source_logits_NK, evidence(right).source_labels_N)
    assert (fitted < 1) == (right == 1.0)
    finished = Finished(4, 1.0, None, [{"step": 4}], "why", evidence(right))
    task = SimpleNamespace(source=SimpleNamespace(images=_Images()), target=_Images())
    write_finished(RunFolder(tmp_path / "run"), finished, load_model(saved_model()), load_config(None, [], {}), task)  # type: ignore[arg-type]
    assert load_model(tmp_path / "run" / "model").temperature == max(1.0, fitted)


class _Images:
    """As much of a domain as a model card reads."""

    origin = Path("images")

    def __len__(self) -> int:
        return 60


def test_the_report_shows_no_more_confidence_than_the_model_has(trained_run: Path) -> None:
    material = read_material(trained_run)
    assert material.evidence is not None
    easy = replace(
        material.evidence,
        source_logits_NK=0.1 * one_hot(material.evidence.source_labels_N, material.evidence.classes).float(),
    )
    section = certainty(replace(material, evidence=easy))
    assert section is not None
    shown = [card["confidence"] for card in section.values["most"]]
    own = easy.target_logits_MK.softmax(1).max(1).values
    assert shown[0] == pytest.approx(float(own.max()), rel=1e-5)
