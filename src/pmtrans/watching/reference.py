"""What new images are compared with: a sample of the run's target, seen by a model that was not trained on it.

That model is the linear probe of the run, whose backbone is untrained; of a moved run it is the given model. Features
of the shipped model would not do: it was trained on the target, so that new images of the same place look different to
it, and false alarms would be more often than stated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from pmtrans.addresses import refuse_unasked
from pmtrans.data.domains import read_data
from pmtrans.errors import RunError, UserError, one_line
from pmtrans.evaluation.passes import run_pass
from pmtrans.files import checksum, regular, write_atomically
from pmtrans.inference.predictor import Predictor
from pmtrans.model import Model
from pmtrans.progress import Reporter
from pmtrans.run.folder import RunFolder
from pmtrans.run.model_folder import load_model
from pmtrans.run.summary import read_summary
from pmtrans.selection.calibration import calibrated_probabilities
from pmtrans.selection.evidence import read_evidence
from pmtrans.settings import load_config
from pmtrans.watching.drift import can_be_compared

MOST = 500  # images of the target: a test takes a moment, and more hardly sharpen it
LEAST = 8


@dataclass(frozen=True)
class Reference:
    """``confidence``: mean calibrated probability of the shipped model on the target."""

    features_RF: Tensor
    confidence: float


@dataclass(frozen=True)
class WatchedRun:
    """A finished run: what it ships, and what it looks at drift with."""

    folder: RunFolder
    predictor: Predictor
    neutral: Model
    identity: str

    def features(self, images: Tensor) -> Tensor:
        with torch.inference_mode():
            features: Tensor = self.neutral.backbone(images.to(self.predictor.device))
        return features.float().cpu()


def open_watched(run: Path, device: str | None = None) -> WatchedRun:
    """One line for a model folder alone and for a run that is not finished."""
    folder, shown = RunFolder(run), one_line(run)
    if not folder.config.is_file():
        if (run / "model.safetensors").is_file():
            raise RunError(f"{shown!r} is a model folder: `watch` needs the run folder, which knows its target.")
        raise RunError(f"{shown!r} is not a run folder: config.yaml is missing.")
    stage = _neutral_stage(folder)
    if not folder.summary.is_file() or stage is None:
        raise RunError(f"Run {shown!r} is not finished: let `pmtrans train` finish it.")
    predictor = Predictor(load_model(folder.model), device)
    neutral = load_model(stage.model)
    if neutral.preprocessing != predictor.trained.preprocessing:
        raise RunError(f"Run {shown!r} has models of different input: it cannot be watched.")
    identity = checksum(folder.model / "model.safetensors", stage.model / "model.safetensors")
    return WatchedRun(folder, predictor, neutral.model.to(predictor.device).eval(), identity)


def reference_of(run: WatchedRun, stored: Path, reporter: Reporter, allowed: Sequence[str] = ()) -> Reference:
    """As stored; the first time from what the run saved of its target, or by one pass over its images."""
    try:
        tensors = safetensors.torch.load_file(regular(stored))
        features_RF, confidence = tensors["features"], float(tensors["confidence"])
        fits = can_be_compared(features_RF, run.neutral.backbone.features) and len(features_RF) >= LEAST
        if not fits or not 0 <= confidence <= 1:
            raise ValueError("not what was saved")
        return Reference(features_RF, confidence)
    except FileNotFoundError:
        pass
    except (OSError, SafetensorError, KeyError, ValueError, RuntimeError):
        raise RunError(f"{one_line(stored)!r} cannot be read: remove it, and it is made again.") from None
    made = _from_evidence(run) or _from_images(run, reporter, allowed)
    if len(made.features_RF) < LEAST:
        raise RunError(f"The target of the run has {len(made.features_RF)} images, to compare with takes {LEAST}.")
    tensors = {"features": made.features_RF, "confidence": torch.tensor(made.confidence, dtype=torch.float64)}
    write_atomically(stored, lambda path: safetensors.torch.save_file(tensors, path))
    return made


def _neutral_stage(folder: RunFolder) -> RunFolder | None:
    stages = (folder.baseline,) if folder.given.is_file() else (folder.probe,)
    return next((stage for stage in stages if stage.model.is_dir()), None)


def _shipped_stage(folder: RunFolder) -> RunFolder:
    """The stage whose model is shipped."""
    shipped = read_summary(folder.summary).shipped
    if shipped == "probe":
        return folder.probe
    if shipped == "source_only" and load_config(folder.config).method["name"] != "source_only":
        return folder.continued if folder.continued.finished.is_file() else folder.baseline
    return folder


def _from_evidence(run: WatchedRun) -> Reference | None:
    stage = _neutral_stage(run.folder)
    assert stage is not None
    try:
        features_MF = read_evidence(stage.evidence).target_features_MD
        logits_MK = read_evidence(_shipped_stage(run.folder).evidence).target_logits_MK
    except (OSError, SafetensorError, TypeError, UserError):
        return None
    return Reference(features_MF[_even(len(features_MF))].contiguous(), _confidence(run, logits_MK))


def _from_images(run: WatchedRun, reporter: Reporter, allowed: Sequence[str]) -> Reference:
    """Where nothing was held out, the run has saved no features."""
    config = load_config(run.folder.config)
    try:
        refuse_unasked(config.data.places, allowed)
        paths = read_data(config, reporter, decode=False).target.domain.paths
    except UserError as error:
        raise RunError(f"The target of the run is needed once, to compare with: {one_line(error, 300)}") from None
    reporter.note("What new images are compared with: one pass over a sample of the target.")
    sample = [paths[int(place)] for place in _even(len(paths))]
    preprocessing = run.predictor.trained.preprocessing
    features = run_pass(run.neutral, sample, preprocessing, 64, 0).features_MF.float().cpu()
    return Reference(features, _confidence(run, run_pass(run.predictor.model, sample, preprocessing, 64, 0).logits_MK))


def _confidence(run: WatchedRun, logits_MK: Tensor) -> float:
    probabilities = calibrated_probabilities(logits_MK, run.predictor.trained.temperature)
    return float(probabilities.max(1).values.mean())


def _even(images: int) -> Tensor:
    return torch.linspace(0, images - 1, min(images, MOST), dtype=torch.float64).round().long()
