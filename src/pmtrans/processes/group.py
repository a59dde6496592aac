"""The processes of one run, as torchrun, Slurm or ``pmtrans train --processes`` started them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from pmtrans.data.batch import Batch
from pmtrans.errors import ConfigError, LostProcess, MistakeReportedByMainProcess, UserError, one_line
from pmtrans.processes.environment import FOLDER, end_with_launcher, whole_number
from pmtrans.processes.exchange import Kind, broadcast, prove_membership
from pmtrans.processes.rendezvous import choose_interface, group_secret, meeting_point
from pmtrans.processes.rows import Division

Result = TypeVar("Result")
PATIENCE = timedelta(hours=2)  # how long the others wait for the main process to judge or to write


@dataclass(frozen=True)
class Processes:
    """This process is number ``rank`` of ``count``; the main one (0) writes, talks and judges."""

    rank: int = 0
    count: int = 1

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def on_main(self, function: Callable[[], Result], *kinds: Kind) -> Result:
        """Call it in the main process; all get its result, or fail as it did.

        ``kinds``: the classes of ours that the result is made of, besides plain values, paths and tensors.
        """
        if self.count == 1:
            return function()
        result, reason, failure = None, None, None
        if self.is_main:
            try:
                result = function()
            except UserError as error:
                failure, reason = error, str(error)
        result, reason = broadcast((result, reason), 0, *kinds)
        if failure is not None:
            raise failure
        if reason is not None:
            raise MistakeReportedByMainProcess(reason)
        return cast(Result, result)

    def together(self, function: Callable[[], Result]) -> Result:
        """Call it in every process; where it is a user's mistake in any, all fail and the main one says why."""
        result, reason = None, None
        try:
            result = function()
        except UserError as error:
            if self.count == 1:
                raise
            reason = str(error)
        if said := self.first_reason(reason):
            raise UserError(said) if self.is_main else MistakeReportedByMainProcess(said)
        return cast(Result, result)

    def highest(self, value: int) -> int:
        """The largest of all processes' numbers; on the CPU, so that no device is waited for."""
        if self.count == 1:
            return value
        agreed = torch.tensor(value)
        dist.all_reduce(agreed, op=dist.ReduceOp.MAX)
        return int(agreed)

    def first_reason(self, reason: str | None) -> str | None:
        """What any process has to complain of; None: nothing."""
        if self.count == 1:
            return reason
        first = self.count - self.highest(self.count - self.rank if reason is not None else 0)
        return None if first == self.count else cast(str, broadcast(reason, first))

    def whole(self, batch: Batch) -> Batch:
        """The batch of all processes, from each process's part of it."""
        if self.count == 1:
            return batch
        parts = (getattr(batch, name) for name in batch.__dataclass_fields__)
        return Batch(*(self._join(part) if len(part) else part for part in parts))

    def gather(self, part: Tensor, images: int) -> Tensor:
        """One row per image, in order, from parts as ``part_of`` cuts them."""
        return part if self.count == 1 else self._join(part)[:images]

    def part_of(self, images: int) -> list[int]:
        """Which images of a domain this process looks at: as many as any other, so the last may come again."""
        share = -(-images // self.count)
        return [min(place, images - 1) for place in range(self.rank * share, (self.rank + 1) * share)]

    def _join(self, part: Tensor) -> Tensor:
        return Division(self.rank, self.count, len(part)).gather(part)

    def check_batch(self, batch_size: int) -> None:
        if batch_size % self.count:
            fits = max(self.count, batch_size // self.count * self.count)
            raise ConfigError(
                f"train.batch_size={batch_size} cannot be shared by {self.count} processes: take {fits} "
                f"or {fits + self.count} (it counts the pairs of all processes together)."
            )


@contextmanager
def joined(environment: Mapping[str, str] = os.environ) -> Iterator[Processes]:
    """The group that the environment tells of (``RANK``, ``WORLD_SIZE``); one process where it tells of none.

    A process that is lost is noticed at the next exchange, and said in one line.
    """
    count = whole_number(environment, "WORLD_SIZE", 1)
    rank = whole_number(environment, "RANK", count)
    local_rank = whole_number(environment, "LOCAL_RANK", 0)
    if count <= 1 or dist.is_initialized():
        yield Processes(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else Processes()
        return
    if rank >= count:
        raise ConfigError(
            f"WORLD_SIZE is {count}, so RANK must be 0 to {count - 1}: start it with torchrun or --processes."
        )
    end_with_launcher(environment)
    on_gpus = torch.cuda.is_available()
    if on_gpus:
        _refuse_without_gpu(environment, local_rank)
        torch.cuda.set_device(local_rank)
    choose_interface(environment)
    try:
        # torchrun keeps its store when it starts all again: the addresses of processes that are gone are in it
        attempt = f"attempt-{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        store = dist.PrefixStore(attempt, meeting_point(environment, PATIENCE))  # type: ignore[attr-defined]
        backend = "cpu:gloo,cuda:nccl" if on_gpus else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=PATIENCE)
        if secret := group_secret(environment):
            prove_membership(secret, attempt)
        yield Processes(dist.get_rank(), count)
        dist.destroy_process_group()
    except (dist.DistError, RuntimeError) as error:
        if not is_lost(error):
            raise
        raise LostProcess(
            f"A process of this run was lost, so all have ended ({one_line(error, 100)}); what was saved is whole. "
            "Give the same command again."
        ) from None


def _refuse_without_gpu(environment: Mapping[str, str], local_rank: int) -> None:
    """All processes of ``--processes`` that are too many end at once, and the first says so."""
    gpus, here = torch.cuda.device_count(), local_rank + 1
    if FOLDER in environment:  # elsewhere each process may see a GPU of its own
        here = max(here, whole_number(environment, "LOCAL_WORLD_SIZE", 1))
    if here > gpus:
        refusal = MistakeReportedByMainProcess if FOLDER in environment and local_rank else ConfigError
        what = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
        raise refusal(f"{here} processes here, {what}: take --processes {gpus}.")


def is_lost(error: BaseException) -> bool:
    """Whether an exchange failed because another process is not there any more."""
    if isinstance(error, dist.DistNetworkError | dist.DistBackendError):
        return True
    said = str(error).lower()
    return "gloo" in said or "connection closed by peer" in said or "connection reset by peer" in said
