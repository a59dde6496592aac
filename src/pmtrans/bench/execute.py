"""One run of a suite, wherever it runs: train or go on, then leave ``result.json``, or one line in ``failure.txt``."""

from __future__ import annotations

import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pmtrans.bench.baselines import find_baseline
from pmtrans.bench.jobs import Job
from pmtrans.bench.results import Result
from pmtrans.errors import RunError, TrainingError, UserError, one_line
from pmtrans.files import read_json, run_lock, write_json, write_text
from pmtrans.progress import Reporter
from pmtrans.run.folder import RunFolder
from pmtrans.run.summary import Summary
from pmtrans.training.train import train

RESULT, FAILURE = "result.json", "failure.txt"


@dataclass(frozen=True)
class Outcome:
    """How a run ended; ``stopped``: by a signal, saved, to be continued."""

    status: Literal["done", "failed", "stopped"]
    message: str = ""


def execute(job: Job, reporter: Reporter) -> Outcome:
    """Whatever goes wrong becomes an outcome, so that the suite goes on; only a signal passes through."""
    try:
        _await_lock(job.folder)
        (job.folder / FAILURE).unlink(missing_ok=True)
        summary = train(job.config, job.folder, reporter, baseline=find_baseline(job.config, job.folder))
        write_json(job.folder / RESULT, asdict(_result(job, summary)))
        return Outcome("done")
    except (UserError, TrainingError) as error:
        message = one_line(error)
    except Exception as error:  # a bug, or memory that ran out: the other runs need not suffer from it
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__} in {Path(place.filename).name}, line {place.lineno}"
        message = one_line(f"{what}: {error}")
    return fail(job, message)


def fail(job: Job, message: str) -> Outcome:
    """Leave the reason in the run's folder; the next call tries again."""
    try:
        write_text(job.folder / FAILURE, message + "\n")
    except OSError as error:
        message += f" (and {FAILURE} cannot be written: {one_line(error, 100)})"
    return Outcome("failed", message)


def read_result(folder: Path) -> Result | None:
    """What ``execute`` left; None: there is no result yet."""
    try:
        return Result(**read_json(folder / RESULT))
    except (OSError, ValueError, TypeError):
        return None


def _result(job: Job, summary: Summary) -> Result:
    selected, last, oracle = summary.adapted, summary.last, summary.oracle
    per_class = summary.evaluations["adapted"].get("oracle_per_class_mean")
    if job.evaluation is not None:
        selected, per_class = _measure(job)
        last = oracle = None  # of these models no weights are kept
    seconds = read_json(RunFolder(job.folder).finished)["seconds"]  # its own: the baseline is a line of its own
    backbone = job.config.backbone.name
    return Result(job.suite, job.task, job.method, backbone, job.seed, selected, last, oracle, per_class, seconds)


def _measure(job: Job) -> tuple[float, float]:
    """Accuracy of the chosen model on images that it was not adapted to: overall, and the mean of classes."""
    import torch

    from pmtrans.data.reading.read import read_target
    from pmtrans.evaluation.accuracy import measure_accuracy
    from pmtrans.evaluation.passes import run_pass
    from pmtrans.inference.predictor import load

    assert job.evaluation is not None
    predictor, data = load(job.folder), job.config.data
    target = read_target(job.evaluation, predictor.classes, root=data.root, classes=data.classes)
    if target.labelled is None:
        raise UserError(f"{one_line(job.evaluation)}: no labels found, so there is nothing to measure against.")
    seen = run_pass(
        predictor.model,
        target.labelled.paths,
        predictor.trained.preprocessing,
        job.config.train.batch_size,
        data.workers,
    )
    labels = torch.tensor(target.labelled.labels)
    accuracy = measure_accuracy(seen.logits_MK.argmax(1), labels, predictor.classes)
    return accuracy.overall, accuracy.per_class_mean


def _await_lock(folder: Path, seconds: float = 60.0) -> None:
    """Workers of a suite that was killed end at their next step: wait for them, not for ever."""
    end = time.monotonic() + seconds
    while (folder / ".lock").exists() and time.monotonic() < end:
        try:
            with run_lock(folder):
                return
        except RunError:
            time.sleep(0.5)
