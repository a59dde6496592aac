"""The Python API: what the verbs of the command line do, as functions.

Each imports what it needs when it is called: nobody waits for matplotlib to predict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmtrans.config import settings_from_flags
from pmtrans.config.sources import one_or_several, source_places
from pmtrans.errors import ConfigError
from pmtrans.inference.predictor import Prediction, Predictor, load
from pmtrans.progress import Reporter
from pmtrans.run.summary import Summary
from pmtrans.settings import load_config
from pmtrans.training.train import train

if TYPE_CHECKING:
    from pmtrans.data.checking.check import Report
    from pmtrans.inference.export.parity import Parity
    from pmtrans.inference.export.write import Format
    from pmtrans.labelling.measurement import Measurement
    from pmtrans.watching.watch import Watched

Location = str | PathLike[str]


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
    source: Location | Sequence[Location],
    target: str | PathLike[str],
    out: str | PathLike[str],
    *,
    target_labels: Location | None = None,
    old: Sequence[Location] = (),
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
    """Adapt a model from a labelled source, or several, to an unlabelled target and return the run.

    ``source``: labelled images; or a run folder or model folder, whose model then moves to the target without source
    images. ``old``, for such a model: images of places where it worked so far, on which it is watched.
    ``settings`` has dotted keys: ``{"train.epochs": 10}``. An interrupted run in ``out`` is resumed.
    ``start_from``: a run whose finished probe and source stage this one starts from. ``target_labels``: labels of some
    target images, which train; without it no target label does.
    """
    if isinstance(source, str | PathLike) and _is_model(Path(source)):
        fixed = {"backbone": backbone, "weights": weights, "method": method, "recipe": recipe, "start_from": start_from}
        settings = {**settings_from_flags(target_labels=target_labels), **(settings or {})}
        return _move(Path(source), target, Path(out), old, seed, settings, overwrite, quiet, fixed)
    if old:
        raise ConfigError("old is for a model that is moved: give a run folder or a model folder as source.")
    flags = settings_from_flags(
        source=source, target=target, target_labels=target_labels, backbone=backbone, weights=weights, method=method,
        seed=seed,
    )  # fmt: skip
    config = load_config(None if recipe is None else Path(recipe), (), {**flags, **(settings or {})})
    folder = Path(out)
    donor = None if start_from is None else Path(start_from)
    return Run(folder, train(config, folder, Reporter(quiet), overwrite, start_from=donor))


def _is_model(path: Path) -> bool:
    """Whether a folder is a run or a model, not class folders."""
    return (path / "config.yaml").is_file() or (path / "model.safetensors").is_file()


def _move(
    model: Path,
    target: Location,
    out: Path,
    old: Sequence[Location],
    seed: int | None,
    settings: Mapping[str, Any],
    overwrite: bool,
    quiet: bool,
    fixed: Mapping[str, object],
) -> Run:
    from pmtrans.training.moving import move, moving_config, open_donor

    if given := [name for name, value in fixed.items() if value is not None]:
        raise ConfigError(f"{given[0]} is not for a model that is moved: it keeps its own; use settings.")
    donor = open_donor(model)
    flags = {**settings_from_flags(seed=seed), **settings}
    config = moving_config(donor, str(Path(target)), out, (), flags)
    return Run(out, move(donor, config, out, Reporter(quiet), [str(place) for place in old], overwrite))


def auto(
    source: Location | Sequence[Location],
    target: str | PathLike[str],
    out: str | PathLike[str],
    *,
    target_labels: Location | None = None,
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
    from pmtrans.automatic.auto import auto as run_auto
    from pmtrans.automatic.budget import parse_time
    from pmtrans.bench.entry import SharedSettings

    flags = settings_from_flags(backbone=backbone, weights=weights)
    domains = settings_from_flags(source=source, target=target, target_labels=target_labels, seed=seed)
    shared = SharedSettings(None if recipe is None else Path(recipe), (), {**flags, **(settings or {})})
    budget = parse_time(time) if isinstance(time, str) else float(time)
    return Run(Path(out), run_auto(shared, domains, Path(out), budget, overwrite, quiet).summary)


def check(
    source: Location | Sequence[Location],
    target: Location,
    *,
    root: Location | None = None,
    classes: Location | Sequence[str] | None = None,
) -> Report:
    """Decode every image of both domains: unreadable files, counts, duplicates, leaks, the domain gap.

    Of several sources, also the gap between each and the target, and duplicates between sources.
    """
    from pmtrans.data.checking.check import check_domains
    from pmtrans.data.reading.read import read_target
    from pmtrans.data.reading.several import read_sources

    places = source_places(one_or_several(source))
    place = None if root is None else Path(root)
    named = Path(classes) if isinstance(classes, PathLike) else classes
    labelled = read_sources(places, root=place, classes=named)
    return check_domains(labelled, read_target(Path(target), labelled.classes, root=place, classes=named))


def evaluate(
    run: Location,
    data: Location,
    *,
    root: Location | None = None,
    batch_size: int = 64,
    workers: int = 0,
    device: str | None = None,
    calibrate: bool = False,
) -> Measurement:
    """Accuracy, F1 and confusions on labelled images, with the model of a run folder or a model folder.

    ``calibrate``: of an open run, first move the threshold of the answer ``unknown`` by these labels.
    """
    from pmtrans.labelling.measurement import measure

    place = None if root is None else str(root)
    return measure(Path(run), str(data), place, batch_size, workers, device, calibrate)


def report(
    run: Location, out: Location | None = None, *, quiet: bool = False, allow_addresses: Sequence[str] = ()
) -> Path:
    """One page about a run; returns its path.

    ``allow_addresses``: of other systems (``s3://bucket``), from which the images that the run names may be read.
    """
    import pmtrans.report

    return pmtrans.report(run, out, quiet=quiet, allow_addresses=allow_addresses)


def compare(runs: Sequence[Location], out: Location | None = None) -> Path:
    """One page about several runs, beside the first of them; returns its path."""
    from pmtrans.report.comparison import write_comparison

    return write_comparison([Path(run) for run in runs], None if out is None else Path(out))


def label_these(
    run: Location,
    out: Location,
    *,
    count: int = 50,
    seed: int = 0,
    quiet: bool = False,
    allow_addresses: Sequence[str] = (),
) -> Path:
    """Choose the target images whose labels tell most; returns labels.csv, with a page that shows them beside it.

    ``allow_addresses``: of other systems (``s3://bucket``), from which the images that the run names may be read.
    """
    from pmtrans.errors import RunError, one_line
    from pmtrans.labelling.choice import pick_images
    from pmtrans.labelling.worksheet import write_folder
    from pmtrans.report.material import read_material

    reporter, material = Reporter(quiet), read_material(Path(run), allow_addresses)
    if material.data is None:
        raise RunError(material.warnings[-1])
    if material.evidence is None:
        raise RunError(
            f"{one_line(run)!r} has no saved outputs to choose by: train with a held-out part of the source "
            "(data.holdout above 0), at least to the first evaluation."
        )
    given = {path for part in material.data.labels_given for path in part.paths}
    labelled = [place for place, path in enumerate(material.target_paths) if path in given]
    if len(labelled) == len(material.target_paths):
        raise RunError(f"All {len(labelled)} images of the target have labels: there is nothing to label.")
    picks = pick_images(material.evidence, count, seed, labelled)
    if len(picks) < count:
        without = " without a label" if labelled else ""
        reporter.warn(f"the target has {len(picks)} images{without}: all of them are listed")
    paths, classes = material.target_paths, material.data.source.classes
    is_open = material.config.data.target_classes == "open"
    return write_folder(Path(out), picks, paths, classes, reporter, is_open)


def watch(
    run: Location,
    images: Location,
    out: Location | None = None,
    *,
    window: int = 64,
    false_alarms: float = 0.01,
    device: str | None = None,
    quiet: bool = False,
) -> Watched:
    """Predict what is new in a folder, each image once, and test it for drift against the target of the run.

    One look into the folder, as ``pmtrans watch --once``; call it again for what has arrived since. Rows are in
    ``out/predictions.csv`` (``RUN/watch`` by default), tests in ``out/windows.csv``.
    """
    from pmtrans.signals import stop_on_signals
    from pmtrans.watching.watch import WatchOptions
    from pmtrans.watching.watch import watch as run_watch

    options, reporter = WatchOptions(window, false_alarms, once=True), Reporter(quiet)
    place = Path(run) / "watch" if out is None else Path(out)
    with stop_on_signals() as stop:
        return run_watch(Path(run), Path(images), place, options, reporter, reporter.note, stop, device)


def export(
    run: Location,
    out: Location,
    *,
    format: Format | None = None,
    with_preprocessing: bool = False,
    int8: bool = False,
    images: Location | None = None,
    tolerance: float | None = None,
    overwrite: bool = False,
) -> Parity:
    """Write the model as ``.onnx`` or ``.pt2``, and return how far it agrees with the model."""
    from pmtrans.inference.export.images import images_for_parity
    from pmtrans.inference.export.write import choose_format, export_model
    from pmtrans.run.folder import refuse_own_part

    file = Path(out)
    refuse_own_part(file, Path(run))
    chosen = choose_format(file, format, overwrite)
    trained = load(run, "cpu").trained
    found, _ = images_for_parity(Path(run), None if images is None else str(images))
    return export_model(trained, file, chosen, found, with_preprocessing, int8, tolerance)
