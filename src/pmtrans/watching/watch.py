"""``watch``: new images of a folder are predicted as they arrive, and a line says when adapting again would pay.

Of every full window of images in their order of arrival it is tested whether they come from where the run's target
came from (``drift.py``). One alarm may be false; two of three windows hardly (three times the square of the rate). If
the model has become less sure there too, adapting again would pay.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from pmtrans.data.loader import image_batches
from pmtrans.data.reading.folders import list_images
from pmtrans.errors import DataError, one_line
from pmtrans.inference.output import as_row
from pmtrans.inference.prediction import predictions, with_unreadable
from pmtrans.progress import Reporter
from pmtrans.signals import StopRequest
from pmtrans.watching.drift import measure_drift
from pmtrans.watching.ledger import Ledger, open_ledger
from pmtrans.watching.reference import Reference, WatchedRun, open_watched, reference_of

SETTLES = 10.0  # seconds in which an unreadable file may still be on its way
LESS_SURE = 0.02  # of mean confidence
BATCH = 32
_LOOK = 0.2  # seconds between two looks for a signal


@dataclass(frozen=True)
class WatchOptions:
    """``false_alarms``: of the windows that do not differ, the share that raises an alarm.

    ``allowed``: addresses of other systems from which the target of the run may be read.
    """

    window: int = 64
    false_alarms: float = 0.01
    every: float = 10.0  # seconds between two looks into the folder
    once: bool = False
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Watched:
    """What is in the table, over all sessions; ``pays``: whether adapting again would, by the latest windows."""

    images: int
    unreadable: int
    windows: int
    drifted: bool
    pays: bool


def watch(
    run: Path,
    images: Path,
    out: Path,
    options: WatchOptions,
    reporter: Reporter,
    say: Callable[[str], None],
    stop: StopRequest,
    device: str | None = None,
) -> Watched:
    """Until a signal, or (``once``) until all that is there is done; the same call resumes. ``say`` gets the lines."""
    if not images.is_dir():
        raise DataError(f"--images {one_line(images)}: there is no such folder")
    watched = open_watched(run, device)
    is_open = watched.predictor.trained.unknown is not None
    width = watched.neutral.backbone.features
    with open_ledger(out, watched.identity, options.window, options.false_alarms, is_open, width) as ledger:
        reference = reference_of(watched, out / "reference.safetensors", reporter, options.allowed)
        say(
            f"Every {options.window} images are compared with {len(reference.features_RF)} of the run's target; of "
            f"windows that do not differ {options.false_alarms:.2%} raise a false alarm."
        )
        pays = False
        while stop.signal is None:
            pays |= _look(watched, images, ledger, reference, options, say, stop)
            if options.once:
                break
            _wait(options.every, stop)
        counts = ledger.counts
        say(f"{counts.images} images in {one_line(out / 'predictions.csv')}, {counts.unreadable} of them unreadable.")
        return Watched(counts.images, counts.unreadable, counts.windows, counts.latest[-1:] == [True], pays)


def _look(
    run: WatchedRun,
    images: Path,
    ledger: Ledger,
    reference: Reference,
    options: WatchOptions,
    say: Callable[[str], None],
    stop: StopRequest,
) -> bool:
    """One look into the folder: what is new is predicted, batch by batch."""
    new = [path for path in _by_arrival(images) if path not in ledger.done]
    trained, pays = run.predictor.trained, False
    begin = 0
    for tensors, errors in image_batches(new, trained.preprocessing, BATCH, 0, device=run.predictor.device):
        paths = new[begin : begin + len(errors)]
        begin += len(errors)
        features_BF = run.features(tensors) if len(tensors) else ledger.features_VF[:0]
        logits = run.predictor.logits(tensors) if len(tensors) else torch.empty(0, len(trained.classes))
        answers = predictions(logits, trained.classes, trained.temperature, unknown=trained.unknown)
        found = list(with_unreadable(paths, errors, answers))
        kept = [one for one in found if one.error is None or not _may_be_on_its_way(one.path)]
        confidence = torch.tensor([one.probability for one in kept if one.probability is not None])
        ledger.add([as_row(one, 1, trained.unknown is not None) for one in kept], features_BF, confidence)
        while (window := ledger.take_window()) is not None:
            pays |= _judge(*window, ledger, reference, options, images, run, say)
        ledger.commit()
        if stop.signal is not None:
            break
    return pays


def _judge(
    features_WF: torch.Tensor,
    confidence: float,
    ledger: Ledger,
    reference: Reference,
    options: WatchOptions,
    images: Path,
    run: WatchedRun,
    say: Callable[[str], None],
) -> bool:
    """Test a window, and say what follows."""
    number = ledger.counts.windows
    drift = measure_drift(reference.features_RF, features_WF, options.false_alarms, seed=number)
    first = number * options.window + 1
    last = first + options.window - 1
    row = {"window": number + 1, "first": first, "last": last, "mmd": f"{drift.mmd:.6g}"}
    row |= {"p_value": f"{drift.p_value:.6g}", "drift": str(drift.alarm).lower(), "confidence": f"{confidence:.6g}"}
    ledger.add_window(row)
    told = "drift" if drift.alarm else "no drift"
    say(f"Window {number + 1} (readable images {first} to {last}): {told}, p = {drift.p_value:.3g}.")
    lasting = sum(ledger.counts.latest) >= 2 and drift.alarm
    if not lasting:
        return False
    change = confidence - reference.confidence
    if change > -LESS_SURE:
        say(f"The images have changed, but the model is as sure as before ({confidence:.1%}): measure before adapting.")
        return False
    command = f"pmtrans adapt {shlex.quote(str(run.folder.path))} --target {shlex.quote(str(images))} --out ..."
    say(
        f"Adapting again would pay: two of the last three windows drifted, and confidence is {confidence:.1%} where "
        f"it was {reference.confidence:.1%} on the run's target. {one_line(command, 500)}"
    )
    return True


def _by_arrival(folder: Path) -> list[str]:
    """Absolute paths, the oldest file first, so that a window is a stretch of time."""
    found = []
    for path in list_images(folder):
        with suppress(OSError):  # it is gone again
            found.append((os.stat(path).st_mtime_ns, os.path.abspath(path)))
    return [path for _, path in sorted(found)]


def _may_be_on_its_way(path: str) -> bool:
    """Whether an unreadable file is so new that it may still be copied: it is looked at again."""
    try:
        return time.time() - os.stat(path).st_mtime < SETTLES
    except OSError:  # gone before it could be read: if it comes back, it is new
        return True


def _wait(seconds: float, stop: StopRequest) -> None:
    end = time.monotonic() + seconds
    while stop.signal is None and (left := end - time.monotonic()) > 0:
        time.sleep(min(_LOOK, left))
