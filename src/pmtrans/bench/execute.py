"""One run of a suite: train or resume, then write ``result.json``, or the reason to ``failure.txt``."""

from __future__ import annotations

import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pmtrans.bench.jobs import Job
from pmtrans.bench.results import Result
from pmtrans.bench.source_stages import find_source_run
from pmtrans.errors import RunError, TrainingError, UserError, one_line
from pmtrans.files import LOCK, run_lock, write_json, write_text
from pmtrans.progress import Reporter
from pmtrans.run.folder import RunFolder
from pmtrans.run.summary import Summary
from pmtrans.texts import TextError, read_json
from pmtrans.training.finished import read_stored
from pmtrans.training.train import train

RESULT, FAILURE = "result.json", "failure.txt"


@dataclass(frozen=True)
class Outcome:
    """How a run ended; ``stopped``: saved after a signal, can be resumed."""

    status: Literal["done", "failed", "stopped"]
    message: str = ""


def execute(job: Job, reporter: Reporter) -> Outcome:
    """Errors become an outcome, so that the suite continues; only a signal is raised."""
    try:
        _await_lock(job.folder)
        (job.folder / FAILURE).unlink(missing_ok=True)
        start_from = job.start_from or find_source_run(job.config, job.folder)
        summary = train(job.config, job.folder, reporter, start_from=start_from)
        write_json(job.folder / RESULT, asdict(_result(job, summary)))
        return Outcome("done")
    except (UserError, TrainingError) as error:
        message = one_line(error)
    except Exception as error:  # a bug, or out of memory: the other runs continue
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__} in {Path(place.filename).name}, line {place.lineno}"
        message = one_line(f"{what}: {error}")
    return fail(job, message)


def fail(job: Job, message: str) -> Outcome:
    """Write the reason to the run's folder; the next call tries again."""
    try:
        write_text(job.folder / FAILURE, message + "\n")
    except OSError as error:
        message += f" (and {FAILURE} cannot be written: {one_line(error, 100)})"
    return Outcome("failed", message)


def read_result(folder: Path) -> Result | None:
    """The result that ``execute`` wrote; None: there is none, or it was changed, and the run is not done."""
    try:
        result: Result = read_json(folder / RESULT, Result)
        return result
    except (OSError, TextError):
        return None


def _result(job: Job, summary: Summary) -> Result:
    selected, last, oracle = summary.adapted, summary.last, summary.oracle
    per_class = (summary.evaluations.get("adapted") or {}).get("oracle_per_class_mean")
    if job.evaluation is not None:
        selected, per_class = _measure(job)
        last = oracle = None  # the weights of these models are not kept
    finished = read_stored(RunFolder(job.folder))  # without the baseline, which has its own row
    backbone = job.config.backbone.name
    return Result(
        job.suite, job.task, job.method, backbone, job.seed, selected, last, oracle, per_class, finished.seconds,
        summary.probe, summary.source_only, finished.memory,
    )  # fmt: skip


def _measure(job: Job) -> tuple[float, float]:
    """Accuracy of the selected model on images that it was not adapted to: overall and per-class mean."""
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
    """Workers of a killed suite stop at their next step: wait for them, up to ``seconds``."""
    end = time.monotonic() + seconds
    while (folder / LOCK).exists() and time.monotonic() < end:
        try:
            with run_lock(folder):
                return
        except RunError:
            time.sleep(0.5)
