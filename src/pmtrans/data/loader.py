"""From domains to batches: decoding and augmentation in worker processes, in an order that is fixed beforehand."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from pmtrans.data.batch import Batch
from pmtrans.data.cache import ImageCache, read_image
from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.data.sampling import ChosenPairs, Draw, PairSampler, Share, random_seed
from pmtrans.data.transforms import Preprocessing, Transform, evaluation_transform
from pmtrans.errors import DataError, ReportedByMainProcess, TrainingError


@dataclass(frozen=True)
class Unreadable:
    """What a worker sends instead of an image; raising in the main process keeps the message one line."""

    reason: str


class VanishedImage(TrainingError):
    """An image that was there when training began cannot be read any more; raised between two steps."""


class VanishReportedByMainProcess(VanishedImage, ReportedByMainProcess):
    """The same in the other processes of a run."""


def _leave_signals_to_the_main_process(_: int) -> None:
    """Ctrl-C, and many schedulers, signal all processes: the loop needs its workers to finish the step and to save."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):  # Linux says who sent it: the main process may end its workers
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_when_told, args=(os.getppid(),), daemon=True).start()


def _end_when_told(main_process: int) -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != main_process:
        pass
    os._exit(0)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """torchvision draws from the CPU's generator alone: seeding only that one is fifty times faster than all."""
    state = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(state)


class _Pairs(Dataset[Any]):
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
        domain = self.source if draw.domain == "source" else self.target
        label = self.source.labels[draw.index] if draw.domain == "source" else -1
        try:
            image = read_image(domain.paths[draw.index], self.preprocessing, self.cache)
        except DataError as error:
            return Unreadable(str(error))
        with _seeded(random_seed(self.seed, "augment", draw.domain, draw.epoch, draw.index)):
            return self.transform(image), label, draw.index, draw.domain == "source"


def _collate_pairs(items: Sequence[Any]) -> Batch | Unreadable:
    for item in items:
        if isinstance(item, Unreadable):
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
    workers: int,
    pin_memory: bool = False,
    cache: ImageCache | None = None,
) -> Iterator[Batch]:
    """All batches of the sampler, in its order; ``cache`` for a transform that begins with the resize it holds."""
    loader: DataLoader[Any] = DataLoader(
        _Pairs(source, target, transform, seed, preprocessing, cache),
        batch_sampler=sampler,
        collate_fn=_collate_pairs,
        num_workers=workers,
        prefetch_factor=2 if workers else None,
        pin_memory=pin_memory,
        worker_init_fn=_leave_signals_to_the_main_process,
        generator=torch.Generator(),  # its own: starting a loader must not draw from the run's random numbers
    )
    for batch in loader:
        if isinstance(batch, Unreadable):
            raise VanishedImage(unreadable(batch.reason))
        if cache is not None:
            cache.check()
        yield batch


class _Images(Dataset[Any]):
    def __init__(self, paths: Sequence[str], preprocessing: Preprocessing, cache: ImageCache | None) -> None:
        self.paths, self.preprocessing, self.cache = paths, preprocessing, cache
        self.transform = evaluation_transform(preprocessing)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        try:
            return self.transform(read_image(self.paths[index], self.preprocessing, self.cache))
        except DataError as error:
            return Unreadable(str(error))


def _collate_images(items: Sequence[Any]) -> tuple[Tensor, list[str | None]]:
    reasons = [item.reason if isinstance(item, Unreadable) else None for item in items]
    readable = [item for item in items if isinstance(item, Tensor)]
    return torch.stack(readable) if readable else torch.empty(0), reasons


def image_batches(
    paths: Sequence[str],
    preprocessing: Preprocessing,
    batch_size: int,
    workers: int,
    cache: ImageCache | None = None,
) -> Iterator[tuple[Tensor, list[str | None]]]:
    """Images under the evaluation transform, in order: the readable ones of a batch, and for each path why not."""
    loader: DataLoader[Any] = DataLoader(
        _Images(paths, preprocessing, cache),
        batch_size=batch_size,
        collate_fn=_collate_images,
        num_workers=workers,
        worker_init_fn=_leave_signals_to_the_main_process,
        generator=torch.Generator(),
    )
    for batch in loader:
        if cache is not None:
            cache.check()
        yield batch


def unreadable(reason: str) -> str:
    """The line for an image that vanished or broke while it was being used."""
    return f"An image became unreadable during training: {reason}. Put it back, then give the same command again."
