"""``--resume``: whether a run folder is new, unfinished or finished, and which checkpoint to resume from.

``auto``   resume what is in the folder, if configuration and data are the same.
``never``  refuse a folder that holds a run.
PATH       resume from a run folder or from one checkpoint in it: of the output folder, or of another run like it.
"""

from __future__ import annotations

import shutil
from enum import Enum
from pathlib import Path
from typing import Any

from pmtrans.config import Config
from pmtrans.errors import RunError, one_line
from pmtrans.files import new_folder, write_text
from pmtrans.progress import Reporter
from pmtrans.run.folder import RunFolder
from pmtrans.run.provenance import describe_run, follow_data, refuse_differences
from pmtrans.texts import read_text
from pmtrans.training.checkpoint import BrokenCheckpoint, Snapshot, checkpoints, load_snapshot


class Opened(Enum):
    """In what state a folder was found."""

    NEW = "new"
    UNFINISHED = "unfinished"
    FINISHED = "finished"


def open_run(folder: RunFolder, config: Config, data: dict[str, Any], resume: str = "auto") -> Opened:
    """Decide, and stage what to resume from; the folder must be claimed."""
    shown = one_line(folder.path)
    run, checkpoint = (folder, None) if resume in ("auto", "never") else _locate(Path(resume))
    if folder.is_run and _same(run, folder) and not folder.has_begun and _differs(folder, config, data):
        folder.forget_start()  # it failed before its first step: this is the corrected command
    if resume == "never" and folder.is_run and folder.has_begun:
        raise RunError(f"Run folder {shown!r} holds a run: resume it with --resume auto, or --overwrite it.")
    if run.is_run:
        refuse_differences(run, config, data)
    if not _same(run, folder):
        if folder.is_run:
            refuse_differences(folder, config, data)
        if checkpoints(folder.checkpoints) or folder.finished.is_file():
            raise RunError(f"Run folder {shown!r} holds a run of its own: choose another --out for --resume PATH.")
        describe_run(folder, config, data)
        _copy(run, checkpoint or _newest(run), folder)
        return Opened.UNFINISHED
    if not folder.is_run:
        describe_run(folder, config, data)
        return Opened.NEW
    follow_data(folder, config)
    if folder.summary.is_file():
        return Opened.FINISHED
    if checkpoint is not None:
        _verify(checkpoint)
        for later in checkpoints(folder.checkpoints):
            if later.name > checkpoint.name:
                shutil.rmtree(later)
    return Opened.UNFINISHED


def _differs(folder: RunFolder, config: Config, data: dict[str, Any]) -> bool:
    try:
        refuse_differences(folder, config, data)
    except RunError:
        return True
    return False


def last_snapshot(folder: Path, reporter: Reporter) -> Snapshot | None:
    """The newest whole checkpoint of a stage, whose folder is made if needed; broken ones are skipped with a line."""
    folder.mkdir(exist_ok=True)
    found = checkpoints(RunFolder(folder).checkpoints)
    for path in reversed(found):
        try:
            return load_snapshot(path)
        except BrokenCheckpoint as error:
            reporter.warn(f"checkpoint {path.name} is skipped: {error}")
    if found:
        reporter.warn("no checkpoint is whole: training begins again")
    return None


def _locate(path: Path) -> tuple[RunFolder, Path | None]:
    """The run that ``--resume PATH`` means, and the checkpoint if it means one."""
    if RunFolder(path).is_run:
        return RunFolder(path), None
    run = RunFolder(path.resolve().parent.parent)
    if path.is_dir() and path.resolve() in checkpoints(run.checkpoints) and run.is_run:
        return run, path.resolve()
    raise RunError(
        f"--resume {one_line(path)!r} is neither a run folder nor a checkpoint (RUN/checkpoints/step-...); "
        "it may also be auto or never."
    )


def _same(one: RunFolder, other: RunFolder) -> bool:
    return one.path.resolve() == other.path.resolve()


def _newest(run: RunFolder) -> Path:
    found = checkpoints(run.checkpoints)
    if not found:
        raise RunError(f"Run {one_line(run.path)!r} has no checkpoint to resume from.")
    return found[-1]


def _verify(checkpoint: Path) -> Snapshot:
    try:
        return load_snapshot(checkpoint)
    except BrokenCheckpoint as error:
        raise RunError(f"Checkpoint {one_line(checkpoint)!r} cannot be used: {error}. Take the one before.") from None


def _copy(run: RunFolder, checkpoint: Path, folder: RunFolder) -> None:
    """What training needs of another run; the checkpoint comes last, so that an interrupted copy is made again."""
    _verify(checkpoint)
    if run.metrics.is_file():
        write_text(folder.metrics, read_text(run.metrics))
    stages = [(old.path, new.path) for old, new in zip(run.stages[:-1], folder.stages[:-1], strict=True)]
    stages.append((run.first.path, folder.first.path))
    parts = (run.candidates, folder.candidates), (checkpoint, folder.checkpoints / checkpoint.name)
    for old, new in (*stages, *parts):
        if old.is_dir():
            with new_folder(new) as temporary:
                shutil.copytree(old, temporary, dirs_exist_ok=True)
