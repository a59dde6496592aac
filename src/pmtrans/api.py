"""The Python API: what ``pmtrans train`` and ``pmtrans auto`` do, as functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from pmtrans.automatic.auto import auto as run_auto
from pmtrans.automatic.budget import parse_time
from pmtrans.bench.entry import SharedSettings
from pmtrans.config import settings_from_flags
from pmtrans.inference.predictor import Prediction, Predictor, load
from pmtrans.progress import Reporter
from pmtrans.run.summary import Summary
from pmtrans.settings import load_config
from pmtrans.training.train import train


class Run:
    """A finished run: its folder, its summary, and its model, which is loaded on first use."""

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
        summary = self.summary
        numbers = f"probe={summary.probe}, source_only={summary.source_only}, adapted={summary.adapted}"
        return f"Run({str(self.path)!r}, {numbers})"


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
    start_from: str | PathLike[str] | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Run:
    """Adapt a model from a labelled source to an unlabelled target and return the run.

    ``settings`` has dotted keys: ``{"train.epochs": 10}``. An interrupted run in ``out`` is resumed.
    ``start_from``: a run whose finished probe and source stage this one starts from.
    """
    flags = settings_from_flags(
        source=source, target=target, backbone=backbone, weights=weights, method=method, seed=seed
    )
    config = load_config(None if recipe is None else Path(recipe), (), {**flags, **(settings or {})})
    folder = Path(out)
    donor = None if start_from is None else Path(start_from)
    return Run(folder, train(config, folder, Reporter(quiet), overwrite, start_from=donor))


def auto(
    source: str | PathLike[str],
    target: str | PathLike[str],
    out: str | PathLike[str],
    *,
    time: str | float = "1h",
    backbone: str | None = None,
    weights: str | PathLike[str] | None = None,
    seed: int = 0,
    recipe: str | PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Run:
    """The best model that ``time`` allows: ``"1h"``, ``"20m"`` or seconds. The same call resumes what is in ``out``.

    ``settings`` has dotted keys and applies to all trainings. All models are in ``out/leaderboard.csv``.
    """
    flags = settings_from_flags(backbone=backbone, weights=weights)
    domains = settings_from_flags(source=source, target=target, seed=seed)
    shared = SharedSettings(None if recipe is None else Path(recipe), (), {**flags, **(settings or {})})
    budget = parse_time(time) if isinstance(time, str) else float(time)
    return Run(Path(out), run_auto(shared, domains, Path(out), budget, overwrite, quiet).summary)
