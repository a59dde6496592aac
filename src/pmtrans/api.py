"""The Python API: what ``pmtrans train`` does, as a function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from pmtrans.inference.predictor import Prediction, Predictor, load
from pmtrans.progress import Reporter
from pmtrans.run.summary import Summary
from pmtrans.settings import load_config
from pmtrans.training.train import train


class Run:
    """A finished run: its folder, its numbers, and its model, opened when it is first used."""

    def __init__(self, path: Path, summary: Summary) -> None:
        self.path = path
        self.summary = summary
        self._predictor: Predictor | None = None

    @property
    def predictor(self) -> Predictor:
        if self._predictor is None:
            self._predictor = load(self.path)
        return self._predictor

    def predict(self, paths: str | PathLike[str] | Sequence[str | PathLike[str]]) -> list[Prediction]:
        """One prediction per path, in order."""
        return self.predictor.predict(paths)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, source_only={self.summary.source_only}, adapted={self.summary.adapted})"


def adapt(
    source: str | PathLike[str],
    target: str | PathLike[str],
    out: str | PathLike[str],
    *,
    backbone: str | None = None,
    weights: str | PathLike[str] | None = None,
    method: str | None = None,
    seed: int | None = None,
    recipe: str | PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Run:
    """Adapt a model from a labelled source to an unlabelled target and return the run.

    ``settings`` are dotted keys: ``{"train.epochs": 10}``. A run that was interrupted in ``out`` goes on.
    """
    flags = {
        "data.source": fspath(source),
        "data.target": fspath(target),
        "backbone.name": backbone,
        "backbone.weights": None if weights is None else fspath(weights),
        "method.name": method,
        "seed": seed,
        **(settings or {}),
    }
    config = load_config(None if recipe is None else Path(recipe), (), flags)
    folder = Path(out)
    return Run(folder, train(config, folder, Reporter(quiet), overwrite))
