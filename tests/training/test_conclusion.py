"""What a run says of itself and ships, on predictions made up so that the right answer is known."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from pmtrans.run.folder import RunFolder
from pmtrans.selection.evidence import Evidence
from pmtrans.settings import load_config
from pmtrans.training.conclusion import choose_reference, conclude
from pmtrans.training.finished import Finished

CLASSES, IMAGES = 3, 240
LABELS = torch.arange(IMAGES) % CLASSES


def features(seed: int) -> Tensor:
    """Three clusters, one a class."""
    noise = 0.1 * torch.randn(IMAGES, 4, generator=torch.Generator().manual_seed(seed))
    return torch.eye(4)[:CLASSES][LABELS] + noise


def model(wrong: float, collapsed: bool = False) -> Finished:
    """A model that is wrong on a share of the target images, or says the same of all; right on the source."""
    called = LABELS.clone()
    called[: round(wrong * IMAGES)] = (called[: round(wrong * IMAGES)] + 1) % CLASSES
    called = torch.zeros_like(called) if collapsed else called
    right = (called == LABELS).double().mean().item()
    evidence = Evidence(
        source_features_ND=features(1),
        source_logits_NK=6.0 * one_hot(LABELS, CLASSES),
        source_labels_N=LABELS,
        target_features_MD=features(2),
        target_logits_MK=6.0 * one_hot(called, CLASSES).float(),
    )
    return Finished(4, 1.0, right, [{"step": 4, "oracle_accuracy": right}], "why", evidence)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    for stage in (folder.probe, folder.baseline, folder):
        stage.model.mkdir(parents=True)
        (stage.model / "model.safetensors").write_text(stage.path.name)
    (folder.model / "model.safetensors").write_text("adapted")
    return folder


def shipped(folder: RunFolder) -> str:
    return (folder.model / "model.safetensors").read_text()


def end(folder: RunFolder, probe: Finished, source: Finished, adapted: Finished, *overrides: str) -> dict[str, object]:
    config = load_config(None, overrides, {})
    conclude(config, folder, probe, source, adapted, choose_reference(probe, source), 3.0)
    written: dict[str, object] = json.loads(folder.summary.read_text())
    return written


def test_an_adapted_model_that_is_ahead_is_shipped(folder: RunFolder) -> None:
    written = end(folder, model(0.3), model(0.2), model(0.0))
    assert (written["verdict"], written["shipped"], shipped(folder)) == ("helped", "adapted", "adapted")
    assert not folder.adapted.exists()
    assert (written["probe"], written["source_only"], written["adapted"]) == (0.7, 0.8, 1.0)


@pytest.mark.parametrize(
    ("probe", "source", "best", "name"), [(0.3, 0.1, "baseline", "source_only"), (0.1, 0.3, "probe", "probe")]
)
def test_what_is_not_ahead_is_kept_and_the_better_of_the_others_is_shipped(
    probe: float, source: float, best: str, name: str, folder: RunFolder
) -> None:
    for adapted in (model(0.4), model(0.0, collapsed=True)):
        written = end(folder, model(probe), model(source), adapted)
        assert (written["shipped"], written["compared_with"], shipped(folder)) == (name, name, best)
        assert written["verdict"] == "hurt"
        assert "is not ahead of it" in str(written["shipped_reason"])
        assert (folder.adapted / "model.safetensors").read_text() == "adapted"
        assert written["estimate"] == written["estimates"][name]  # type: ignore[index]


def test_the_summary_keeps_its_contract_with_scripts(folder: RunFolder) -> None:
    written = end(folder, model(0.3), model(0.2), model(0.0))
    for estimate in (written["estimate"], *written["estimates"].values()):  # type: ignore[attr-defined]
        assert {"accuracy", "low", "high", "level"} <= set(estimate)
        assert 0 <= estimate["low"] <= estimate["accuracy"] <= estimate["high"] <= 1
        assert estimate["level"] == 0.9
    assert written["verdict"] == "helped"
    assert 0.5 <= written["verdict_probability"] <= 1  # type: ignore[operator]


def test_a_user_may_want_the_adapted_model_all_the_same(folder: RunFolder) -> None:
    written = end(folder, model(0.3), model(0.1), model(0.4), "selection.ship=adapted")
    assert (written["shipped"], shipped(folder), written["verdict"]) == ("adapted", "adapted", "hurt")


def test_the_method_is_compared_with_the_source_only_model_on_neutral_features() -> None:
    probe, source = model(0.1), model(0.3)
    assert probe.evidence is not None
    assert source.evidence is not None
    reference = choose_reference(probe, source)
    assert reference is not None
    assert torch.equal(reference.evidence.target_features_MD, probe.evidence.target_features_MD)
    assert torch.equal(reference.evidence.target_logits_MK, source.evidence.target_logits_MK)
    assert reference.models.lead == pytest.approx(0.2, abs=0.08)  # the probe is right on a fifth of the images more
    assert reference.name == "probe"


def test_a_gain_over_source_only_that_the_probe_has_too_does_not_count(folder: RunFolder) -> None:
    written = end(folder, model(0.1), model(0.3), model(0.15))
    assert (written["shipped"], written["compared_with"]) == ("probe", "probe")
    assert written["verdict"] != "helped"
    assert re.search(r"the linear probe is 1\d\.\d points ahead of the model before", str(written["verdict_reason"]))


def test_without_evidence_there_is_no_reference() -> None:
    silent = Finished(0, 1.0, None, [{"step": 0}], "why", None)
    assert choose_reference(silent, None) is None
    reference = choose_reference(model(0.1), None)
    assert reference is not None
    assert reference.name == "probe"
