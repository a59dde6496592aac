"""The run folder: its parts, and who may write it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pmtrans.errors import RunError, one_line
from pmtrans.files import LOCK, is_leftover, refuse_foreign, run_lock, settle, was_locked, writing


@dataclass(frozen=True)
class RunFolder:
    """Paths inside a run folder."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def data(self) -> Path:
        return self.path / "data.json"

    @property
    def holdout(self) -> Path:
        """Places of the held-out images in the source."""
        return self.path / "holdout.json"

    @property
    def classes(self) -> Path:
        return self.path / "classes.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def candidates(self) -> Path:
        return self.path / "candidates"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def finished(self) -> Path:
        return self.path / "finished.json"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def evidence(self) -> Path:
        return self.path / "evidence.safetensors"

    @property
    def environment(self) -> Path:
        return self.path / "environment.json"

    @property
    def probe(self) -> RunFolder:
        return RunFolder(self.path / "probe")

    @property
    def baseline(self) -> RunFolder:
        return RunFolder(self.path / "baseline")

    @property
    def continued(self) -> RunFolder:
        return RunFolder(self.path / "continued")

    @property
    def first(self) -> RunFolder:
        """The adapted model of another run, where the method starts from it."""
        return RunFolder(self.path / "first")

    @property
    def stages(self) -> tuple[RunFolder, ...]:
        """Every stage that fits or trains a model, in order; the last is the method itself."""
        return self.probe, self.baseline, self.continued, self

    @property
    def adapted(self) -> Path:
        """The adapted model, where another one is shipped."""
        return self.path / "adapted"

    @property
    def origin(self) -> Path:
        """Of a stage that was taken over from another run: which run."""
        return self.path / "origin.json"

    @property
    def target_labels(self) -> Path:
        """Which target images train with a label and which are kept for measuring."""
        return self.path / "target_labels.json"

    @property
    def before_labels(self) -> Path:
        """What the run that this one started from said of the kept images, before there were labels."""
        return self.path / "before_labels.json"

    @property
    def given(self) -> Path:
        """Of a run that moves a shipped model: the labels of that model, in place of a source."""
        return self.path / "given.json"

    @property
    def parts(self) -> tuple[Path, ...]:
        """All that a run writes into its folder."""
        stages = (stage.path for stage in self.stages[:-1])
        return (
            self.config, self.data, self.holdout, self.classes, self.metrics, self.checkpoints, self.candidates,
            self.model, self.finished, self.summary, self.evidence, self.environment, self.adapted, self.origin,
            self.target_labels, self.before_labels, self.given, self.first.path, *stages,
        )  # fmt: skip

    @property
    def is_run(self) -> bool:
        """``config.yaml`` is written last: where it is, the start was complete."""
        return self.config.is_file() and (self.data.is_file() or was_locked(self.path))

    @property
    def has_begun(self) -> bool:
        """Whether a step of training was taken here; the probe and adopted stages are quick to do again."""
        own = [stage for stage in self.stages[1:] if not stage.origin.is_file()]
        marks = [mark for stage in own for mark in (stage.finished, stage.metrics)]
        checkpoints = [entry for stage in own if stage.checkpoints.is_dir() for entry in stage.checkpoints.iterdir()]
        return bool(checkpoints) or any(mark.is_file() and mark.stat().st_size for mark in marks)

    def forget_start(self) -> None:
        """Remove what a start that failed before its first step left; what else is in the folder stays."""
        _remove([self.config, self.data, self.first.path, *(stage.path for stage in self.stages[:-1])])


_NOT_OURS = {"data", "figures"}  # images of the demo, and what a report drew: nothing is resumed from them
_STARTED = {LOCK, "data.json", "data"}  # what an interrupted start leaves (``data``: the demo's digits)


@contextmanager
def claim(folder: RunFolder, overwrite: bool = False) -> Iterator[None]:
    """The folder for this process alone, made if needed, emptied if asked, cleaned up after a kill."""
    refuse_occupied(folder)
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"Output folder {one_line(folder.path)!r} cannot be made: {error.strerror}.") from None
    refuse_foreign_parts(folder)
    with run_lock(folder.path):
        if overwrite and folder.is_run:
            _empty(folder)
        for stage in (folder.first, *folder.stages):
            for path in (stage.path, stage.checkpoints, stage.candidates):
                settle(path)
        yield


_PARTS = {part.name for part in RunFolder(Path()).parts} | {LOCK, "config.json", "model.safetensors", "README.md"}
_KINDS = {".yaml", ".json", ".jsonl", ".safetensors", ".md"}


def refuse_own_part(out: Path, *runs: Path) -> None:
    """Refuse to write an output over a part of a run folder or a model folder; beside the parts there is room."""
    with writing(out):  # a path with a NUL is nowhere
        place = Path(os.path.realpath(out))
    for run in runs:
        inside = place.relative_to(run.resolve()).parts if place.is_relative_to(run.resolve()) else ()
        if inside and inside[0] in _PARTS and (len(inside) == 1 or place.suffix in _KINDS):
            raise RunError(f"--out {one_line(out)!r} is a part of the run itself: choose another file.")


def unreadable(part: Path, folder: RunFolder, why: object) -> RunError:
    """For a part of a finished run that is not as the run wrote it."""
    return RunError(
        f"{one_line(part)!r} cannot be read ({one_line(why, 100)}): remove the folder {one_line(folder.path)!r}, "
        "and the same command trains it again."
    )


def refuse_foreign_parts(folder: RunFolder) -> None:
    """A received run may hold links to elsewhere, where writing and cleaning up would do harm."""
    if folder.path.is_dir() and os.name == "posix" and os.geteuid() not in (0, folder.path.stat().st_uid):
        raise RunError(f"Run folder {one_line(folder.path)!r} belongs to another user: choose another --out.")
    for stage in (folder.first, *folder.stages):
        if stage is not folder:
            refuse_foreign(stage.path)
        for entry in stage.path.iterdir() if stage.path.is_dir() else ():
            if entry.name not in _NOT_OURS:
                refuse_foreign(entry)
        for part in (stage.checkpoints, stage.candidates):
            for entry in part.iterdir() if part.is_dir() else ():
                refuse_foreign(entry)


def refuse_occupied(folder: RunFolder) -> None:
    """Refuse a place that is no folder, or a folder in which somebody else's files are."""
    path = folder.path
    if path.exists() and not path.is_dir():
        raise RunError(f"--out {one_line(path)!r} is a file, not a folder.")
    if not path.is_dir() or folder.is_run:
        return
    names = {entry.name for entry in path.iterdir() if not is_leftover(entry.name)} - {LOCK}
    cut_short = was_locked(path) and all(name in _STARTED or name.startswith(".data-") for name in names)
    if names and not cut_short:
        raise RunError(f"Output folder {one_line(path)!r} is in use and is no run: choose another --out.")


def _empty(folder: RunFolder) -> None:
    """In an order that leaves a run to resume, if it is interrupted: checkpoints first, then their log."""
    _remove([folder.summary, *(stage.finished for stage in folder.stages)])
    _remove(stage.checkpoints for stage in folder.stages)
    _remove(entry for entry in folder.path.iterdir() if entry.name not in (LOCK, folder.config.name))
    _remove([folder.config])


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            try:
                shutil.rmtree(path)
            except RecursionError:
                raise RunError(f"{one_line(path)!r} is nested too deeply: remove it yourself, with rm -r.") from None
        else:
            path.unlink(missing_ok=True)
