"""Safe training (SSRT, CVPR 2022, Algorithm 1): when predictions lose diversity, go back to the last good weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
import torch.distributed
import torch.nn.functional as F
from torch import Tensor, nn

from pmtrans.methods.method import Moment

LEVELS = 5  # a period is looked at whole, in halves, ... in sixteenths
PARTS = 2 ** (LEVELS - 1)
SMALLEST_PART = 62  # steps: the paper's periods have 1000; the mean over fewer falls by a class by chance alone


class SafeTraining(nn.Module):
    """The adaptive strength r, the record of diversity, and a real copy of the weights to return to.

    A period of any length is recorded in sixteenths: sums and counts, the last good period in row 0, this one in row 1.
    Parts of fewer than ``smallest_part`` steps are not compared, but for whole periods.
    """

    begin: Tensor  # t_0: the step of the last restore
    stretch: Tensor  # T_r in periods
    restores: Tensor
    sums_2P: Tensor
    counts_2P: Tensor

    def __init__(
        self, modules: Sequence[nn.Module], tolerance: float = 1.0, smallest_part: int = SMALLEST_PART
    ) -> None:
        super().__init__()
        self.tolerance, self.smallest_part = tolerance, smallest_part
        # copies that nobody trains, not references: a snapshot that shares memory restores nothing
        self.snapshot = nn.ModuleList(copy.deepcopy(list(modules))).requires_grad_(False)
        for name in ("begin", "restores"):
            self.register_buffer(name, torch.zeros((), dtype=torch.long))
        self.register_buffer("stretch", torch.ones((), dtype=torch.long))
        self.register_buffer("sums_2P", torch.zeros(2, PARTS))
        self.register_buffer("counts_2P", torch.zeros(2, PARTS))

    def strength(self, moment: Moment, period: int) -> Tensor:
        """r(t) = sin(pi/2 (t - t_0) / T_r), 1 after T_r steps (Eq. 7)."""
        return torch.sin(math.pi / 2 * ((moment.step - self.begin) / (self.stretch * period)).clamp(0, 1))

    @torch.no_grad()
    def record(self, target_logits_BK: Tensor, moment: Moment, period: int) -> Tensor:
        """Enter the diversity of a batch: how many classes are predicted at all; the mean over processes."""
        classes = target_logits_BK.shape[1]
        diversity = F.one_hot(target_logits_BK.argmax(1), classes).amax(0).sum().float()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(diversity)  # all must come to the same verdict
            diversity /= torch.distributed.get_world_size()
        part = moment.step % period * PARTS // period
        self.sums_2P[1, part] += diversity
        self.counts_2P[1, part] += 1
        return diversity

    def dropped(self, period: int) -> Tensor:
        """Whether the mean fell by more than the tolerance from one part to the next, at any level."""
        drops = []
        for level in (level for level in range(LEVELS) if level == 0 or period >> level >= self.smallest_part):
            means_2L = self.sums_2P.unflatten(1, (2**level, -1)).sum(2) / self.counts_2P.unflatten(
                1, (2**level, -1)
            ).sum(2)
            course = torch.cat([means_2L[0, -1:], means_2L[1]])  # the end of the last good period, then this one
            drops.append((course[:-1] - course[1:] > self.tolerance).any())  # a part without a step is NaN: no drop
        return torch.stack(drops).any()

    @torch.no_grad()
    def watch(self, moment: Moment, period: int, modules: Sequence[nn.Module]) -> bool:
        """At the end of each period keep the weights, or put the kept ones back; True: they were put back."""
        if moment.step == 0 or moment.step % period:
            return False
        unsafe = bool(self.dropped(period) & (self.strength(moment, period) > 0.1))
        kept, present = self.snapshot, nn.ModuleList(modules)
        (_copy(kept, present) if unsafe else _copy(present, kept))
        if unsafe:
            again = (self.restores > 0) & (moment.step - self.begin <= self.stretch * period)
            self.stretch *= 1 + again.long()
            self.begin.fill_(moment.step)
            self.restores += 1
        for record_2P in (self.sums_2P, self.counts_2P):
            if not unsafe:  # what was undone is no measure for what comes: the last good period is
                record_2P[0] = record_2P[1]
            record_2P[1] = 0
        return unsafe


def _copy(origin: nn.Module, destination: nn.Module) -> None:
    for value, place in zip(origin.state_dict().values(), destination.state_dict().values(), strict=True):
        place.copy_(value)
