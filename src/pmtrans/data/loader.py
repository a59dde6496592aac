"""Data loaders: decoding and augmentation in worker processes, in an order fixed by the sampler."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from pmtrans.data.batch import Batch
from pmtrans.data.cache import ImageCache, read_image
from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.data.gate import UnavailableImage
from pmtrans.data.sampling import ChosenPairs, Draw, PairSampler, Share, random_seed
from pmtrans.data.transforms import Preprocessing, Transform, evaluation_transform
from pmtrans.errors import TOO_MANY_OPEN_FILES, DataError, ReportedByMainProcess, TrainingError
from pmtrans.machine import loader_workers
from pmtrans.signals import held_back

_LOOK_EVERY = 5  # seconds between two looks whether the loader processes live
_OPEN_FILES = Path("/proc/self/fd")
DESCRIPTORS, DESCRIPTORS_EACH = 8, 8  # that loader processes need: pipes of all, pipes and tensors of each
ANSWER_WITHIN = 600  # seconds for a batch; a loader process that was forked at a bad moment would never answer
CPU = torch.device("cpu")


def _require_descriptors(workers: int) -> None:
    """Before any process is started: one that runs out of descriptors can only die of it, in many lines."""
    if not workers or not _OPEN_FILES.is_dir():
        return
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        left = limit - len(os.listdir(_OPEN_FILES))
    except OSError:
        left = 0
    if limit != resource.RLIM_INFINITY and left < DESCRIPTORS + DESCRIPTORS_EACH * workers:
        raise TrainingError(TOO_MANY_OPEN_FILES)


@dataclass(frozen=True)
class DecodingFailure:
    """Returned by a worker instead of an image; the main process raises, so that the error stays one line."""

    reason: str
    stops: bool = False  # the machine's fault: no image may be left out because of it


class VanishedImage(TrainingError):
    """An image that could be read when training began cannot be read now; raised between two steps."""


class VanishReportedByMainProcess(VanishedImage, ReportedByMainProcess):
    """``VanishedImage`` in all processes but the main one, which reports it."""


_TELLS_THE_SENDER = hasattr(signal, "sigwaitinfo")  # Linux does


def _leave_signals_to_the_main_process(_: int) -> None:
    """Ctrl-C and many schedulers signal all processes, but the loop needs its workers to finish the step and save."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.excepthook = _silent_after(os.getppid())
    if _TELLS_THE_SENDER:  # the main process may stop its workers
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_exit_on_sigterm_from, args=(os.getppid(),), daemon=True).start()


def _silent_after(main_process: int) -> Callable[..., None]:
    """An exception hook that does not report a connection lost because the main process was killed."""

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        deadline = time.monotonic() + 1.0  # the kernel closes the connections of a process before it is gone
        while isinstance(error, OSError | EOFError) and time.monotonic() < deadline:
            if os.getppid() != main_process:
                return
            time.sleep(0.01)
        sys.__excepthook__(kind, error, trace)

    return report


def _exit_on_sigterm_from(main_process: int) -> None:
    """Also when the main process is gone, which may have been killed."""
    while os.getppid() == main_process:
        received = signal.sigtimedwait({signal.SIGTERM}, 1.0)
        if received is not None and received.si_pid == main_process:
            break
    os._exit(0)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the CPU generator only: torchvision uses no other, and seeding all is fifty times slower."""
    state = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(state)


class _PairDataset(Dataset[Any]):
    def __init__(
        self,
        source: LabelledDomain,
        target: Domain,
        transform: Transform,
        seed: int,
        preprocessing: Preprocessing,
        cache: ImageCache | None,
    ) -> None:
        self.source, self.target = source, target
        self.transform, self.seed, self.preprocessing, self.cache = transform, seed, preprocessing, cache

    def __getitem__(self, draw: Draw) -> Any:
        domain = self.source.images if draw.domain == "source" else self.target
        label = self.source.labels[draw.index] if draw.domain == "source" else -1
        try:
            image = read_image(domain.paths[draw.index], self.preprocessing, self.cache)
        except DataError as error:
            return DecodingFailure(str(error))
        with _seeded(random_seed(self.seed, "augment", draw.domain, draw.epoch, draw.index)):
            return self.transform(image), label, draw.index, draw.domain == "source"


def _collate_pairs(items: Sequence[Any]) -> Batch | DecodingFailure:
    for item in items:
        if isinstance(item, DecodingFailure):
            return item
    parts: dict[bool, list[Any]] = {True: [], False: []}
    for image, label, index, is_source in items:
        parts[is_source].append((image, label, index))
    images = {kind: torch.stack([i[0] for i in part]) if part else torch.empty(0) for kind, part in parts.items()}
    index = {kind: torch.tensor([i[2] for i in part], dtype=torch.long) for kind, part in parts.items()}
    labels = torch.tensor([i[1] for i in parts[True]], dtype=torch.long)
    return Batch(images[True], labels, index[True], images[False], index[False])


def pair_batches(
    source: LabelledDomain,
    target: Domain,
    transform: Transform,
    sampler: PairSampler | ChosenPairs | Share,
    seed: int,
    preprocessing: Preprocessing,
    workers: int | None,
    device: torch.device = CPU,
    cache: ImageCache | None = None,
) -> Iterator[Batch]:
    """The sampler's batches, in order, to be copied to ``device``.

    ``cache`` may be given if the transform begins with the cached resize.
    """
    loader: DataLoader[Any] = DataLoader(
        _PairDataset(source, target, transform, seed, preprocessing, cache),
        batch_sampler=sampler,
        collate_fn=_collate_pairs,
        **_loading(workers, device),
    )
    for batch in _in_time(loader):
        if isinstance(batch, DecodingFailure):
            raise VanishedImage(unreadable_message(batch.reason))
        if cache is not None:
            cache.check()
        yield batch


def _loading(workers: int | None, device: torch.device) -> dict[str, Any]:
    """How a loader works for a device; ``workers`` None: as many processes as the machine has cores for."""
    count = loader_workers(device) if workers is None else workers
    return {
        "num_workers": count,
        "prefetch_factor": 2 if count else None,
        "timeout": _LOOK_EVERY if count else 0,
        "pin_memory": device.type == "cuda",  # else the host would wait for each copy
        "worker_init_fn": _leave_signals_to_the_main_process,
        "generator": torch.Generator(),  # its own, so that a loader does not advance the run's random state
    }


def _in_time(loader: DataLoader[Any]) -> Iterator[Any]:
    """The batches; torch's "timed out" is raised once one has taken ``ANSWER_WITHIN``, and not at every look."""
    _require_descriptors(loader.num_workers)
    with held_back(signal.SIGTERM) if _TELLS_THE_SENDER else nullcontext():  # until the workers can tell who sends it
        batches = iter(loader)
    asked = time.monotonic()
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            return
        except RuntimeError as error:
            if str(error).startswith("DataLoader timed out") and time.monotonic() - asked < ANSWER_WITHIN:
                continue
            raise
        yield batch
        asked = time.monotonic()


class _ImageDataset(Dataset[Any]):
    def __init__(self, paths: Sequence[str], preprocessing: Preprocessing, cache: ImageCache | None) -> None:
        self.paths, self.preprocessing, self.cache = paths, preprocessing, cache
        self.transform = evaluation_transform(preprocessing)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        try:
            return self.transform(read_image(self.paths[index], self.preprocessing, self.cache))
        except DataError as error:
            return DecodingFailure(str(error), isinstance(error, UnavailableImage))


def _collate_images(items: Sequence[Any]) -> tuple[Tensor, list[str | None]] | DecodingFailure:
    for item in items:
        if isinstance(item, DecodingFailure) and item.stops:
            return item
    reasons = [item.reason if isinstance(item, DecodingFailure) else None for item in items]
    readable = [item for item in items if isinstance(item, Tensor)]
    return torch.stack(readable) if readable else torch.empty(0), reasons


def image_batches(
    paths: Sequence[str],
    preprocessing: Preprocessing,
    batch_size: int,
    workers: int | None,
    cache: ImageCache | None = None,
    device: torch.device = CPU,
) -> Iterator[tuple[Tensor, list[str | None]]]:
    """Batches of (readable images under the evaluation transform, for each path None or why it is unreadable)."""
    loader: DataLoader[Any] = DataLoader(
        _ImageDataset(paths, preprocessing, cache),
        batch_size=batch_size,
        collate_fn=_collate_images,
        **_loading(workers, device),
    )
    for batch in _in_time(loader):
        if isinstance(batch, DecodingFailure):
            raise DataError(batch.reason)
        if cache is not None:
            cache.check()
        yield batch


def unreadable_message(reason: str) -> str:
    """The error message for an image that disappeared or broke during training."""
    return f"An image became unreadable during training: {reason}. Restore it, then repeat the command."
