"""The contents of a run folder that a report needs; what the run does not have is None or empty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from pmtrans.addresses import refuse_unasked
from pmtrans.config import Config
from pmtrans.data.domains import Data, read_data
from pmtrans.data.reading.classes import read_classes
from pmtrans.data.sampling import count_steps
from pmtrans.errors import RunError, UserError, one_line
from pmtrans.files import is_missing
from pmtrans.progress import Reporter
from pmtrans.run.folder import RunFolder
from pmtrans.run.metrics import read_metrics
from pmtrans.run.model_folder import TrainedModel, load_model
from pmtrans.run.provenance import fingerprint
from pmtrans.run.summary import Summary, read_summary
from pmtrans.selection.evidence import MOST_TARGET, Evidence, judged_places, read_evidence
from pmtrans.settings import load_config
from pmtrans.texts import TextError, read_json

Line = dict[str, Any]


@dataclass(frozen=True)
class Material:
    """A run on disk. For an unfinished run, ``evidence`` is that of its newest candidate."""

    folder: Path
    config: Config
    metrics: list[Line]
    baseline_metrics: list[Line]
    summary: Summary | None
    evidence: Evidence | None
    baseline_evidence: Evidence | None
    data: Data | None
    environment: dict[str, str]
    warnings: tuple[str, ...]  # about the data, and about files that could not be read

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def method(self) -> str:
        return str(self.config.method["name"])

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Class names for display: no control characters, no line breaks."""
        path = RunFolder(self.folder).classes
        names = read_classes(path) if path.is_file() else (self.data.source.classes if self.data else [])
        return tuple(one_line(name, 300) for name in names)

    @property
    def steps(self) -> int | None:
        """Total number of training steps."""
        if self.data is None:
            return None
        train, source, target = self.config.train, len(self.data.source), len(self.data.target.domain)
        return count_steps(train, source, target, min(train.batch_size, source, target))[0]

    @cached_property
    def evaluations(self) -> list[Line]:
        return [line for line in self.metrics if line.get("event") == "evaluation"]

    @cached_property
    def target_paths(self) -> Sequence[str]:
        """The target images that evidence has a row of, in its order: of a very large target, a sample."""
        paths = self.data.target.domain.paths if self.data is not None else ()
        return paths if len(paths) <= MOST_TARGET else [paths[place] for place in judged_places(len(paths)).tolist()]

    @cached_property
    def target_labels(self) -> dict[int, int]:
        """Row of the evidence -> class, where labels exist; for display only, not used for selection."""
        if self.data is None or self.data.target.labelled is None:
            return {}
        row = {path: index for index, path in enumerate(self.target_paths)}
        labelled = self.data.target.labelled
        return {row[path]: label for path, label in zip(labelled.paths, labelled.labels, strict=True) if path in row}

    @cached_property
    def model(self) -> TrainedModel | None:
        folder = RunFolder(self.folder)  # another model may be shipped than the adapted one
        return self._opened(folder.adapted if folder.adapted.is_dir() else folder.model)

    @cached_property
    def baseline_model(self) -> TrainedModel | None:
        return self._opened(RunFolder(self.folder).baseline.model)

    @property
    def model_warnings(self) -> list[str]:
        """Models that cannot be opened: their pictures are missing from the report."""
        _ = self.model, self.baseline_model
        return self._unopened

    @cached_property
    def _unopened(self) -> list[str]:
        return []

    def _opened(self, folder: Path) -> TrainedModel | None:
        try:
            return load_model(folder) if folder.is_dir() else None
        except UserError as error:  # a report without attention maps is better than none
            self._unopened.append(f"No picture of this model is shown: {one_line(error)}")
            return None


def read_material(folder: Path, allowed: Sequence[str] = ()) -> Material:
    """Read a run folder, finished or not; raises only if it is not a run folder.

    ``allowed``: addresses of other systems from which its images may be read.
    """
    run = RunFolder(folder)
    if is_missing(run.config):
        raise RunError(f"{one_line(folder)!r} is not a run folder: config.yaml is missing.")
    config = load_config(run.config)
    warnings: list[str] = []
    evidence = _evidence(folder, warnings)
    baseline = _evidence(run.baseline.path, warnings)
    data = _data(run, config, allowed, warnings)
    if data is not None and evidence is not None:
        then = len(evidence.source_labels_N), len(evidence.target_logits_MK)
        now = len(data.holdout), min(len(data.target.domain), MOST_TARGET)
        if then != now:
            warnings.append(
                f"The run had {then[0]} held-out and {then[1]} target images, now there are {now[0]} and {now[1]}: "
                "none are shown."
            )
            data = None
    environment = run.environment
    return Material(
        folder=folder,
        config=config,
        metrics=read_metrics(run.metrics),
        baseline_metrics=read_metrics(run.baseline.metrics),
        summary=read_summary(run.summary) if run.summary.is_file() else None,
        evidence=evidence,
        baseline_evidence=baseline if evidence is None or _same_images(evidence, baseline) else None,
        data=data,
        environment=_versions(environment, warnings),
        warnings=tuple(dict.fromkeys(warnings)),
    )


class _WarningCollector(Reporter):
    """Collects the warnings of reading the data."""

    def __init__(self, warnings: list[str]) -> None:
        super().__init__(quiet=True)
        self.warnings = warnings

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def _data(run: RunFolder, config: Config, allowed: Sequence[str], warnings: list[str]) -> Data | None:
    """The data of the run, or None if they have changed since training."""
    try:
        if config.data.given is not None:  # in the run folder, wherever that is now
            config = config.model_copy(update={"data": config.data.model_copy(update={"given": str(run.given)})})
        refuse_unasked(config.data.places, allowed)
        held_places = read_json(run.holdout, list[int]) if run.holdout.is_file() else None
        # otherwise training has checked that all can be read
        decode = config.data.on_bad_image == "skip" or (held_places is None and config.data.given is None)
        data = read_data(config, _WarningCollector(warnings), decode, held_places)
    except UserError as error:
        warnings.append(f"The images of this run cannot be read, so none are shown: {one_line(error)}")
        return None
    recorded = run.data
    if recorded.is_file() and _recorded(recorded) != fingerprint(data.source, data.target.domain, data.labels_given):
        warnings.append("The images have changed since this run was trained, so none are shown.")
        return None
    warnings += data.target.warnings
    return data


def _recorded(path: Path) -> Any:
    try:
        return read_json(path)
    except TextError:  # not what the run wrote: the images are not known to be its own
        return None


def _versions(path: Path, warnings: list[str]) -> dict[str, str]:
    try:
        return dict(read_json(path, dict[str, str])) if path.is_file() else {}
    except TextError as error:
        warnings.append(f"{path.name} cannot be read: {error}")
        return {}


def _evidence(folder: Path, warnings: list[str]) -> Evidence | None:
    candidates = sorted(RunFolder(folder).candidates.glob("step-*/evidence.safetensors"))
    path = RunFolder(folder).evidence
    path = path if path.is_file() or not candidates else candidates[-1]
    try:
        return read_evidence(path) if path.is_file() else None
    except (OSError, SafetensorError, TypeError, UserError) as error:
        warnings.append(f"{path.name} cannot be read: {one_line(error, 150)}")
        return None


def _same_images(one: Evidence, other: Evidence | None) -> bool:
    return (
        other is not None
        and one.target_logits_MK.shape == other.target_logits_MK.shape
        and one.source_logits_NK.shape == other.source_logits_NK.shape
    )
