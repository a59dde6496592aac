"""Do new images come from where the target came from? A two-sample test with an exact false-alarm rate.

Maximum mean discrepancy (Gretton et al., A Kernel Two-Sample Test, JMLR 2012) between the features of a window of new
images and those of a sample of the target, with a Gaussian kernel whose width is the median distance. Its distribution
without drift comes from random permutations of the pooled images, so that of windows that do not differ a share of
``false_alarms`` raises an alarm, whatever the features, if images are independent draws: frames of one film are not.

Features must be those of a model that was trained on neither: a model trained on the target has seen one side.
Shapes: R images of the target, W of the window, F feature width, P permutations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

PERMUTATIONS = 999
LARGEST = 20_000


@dataclass(frozen=True)
class Drift:
    """``mmd`` is the unbiased square of the discrepancy, about 0 without drift; ``p_value`` counts from 1/(P+1)."""

    mmd: float
    p_value: float
    alarm: bool


def can_be_compared(features_MF: Tensor, width: int) -> bool:
    """Whether they are finite features of this width."""
    shaped = features_MF.ndim == 2 and features_MF.shape[1] == width
    return shaped and features_MF.is_floating_point() and bool(features_MF.isfinite().all())


@torch.no_grad()
def measure_drift(reference_RF: Tensor, window_WF: Tensor, false_alarms: float, seed: int = 0) -> Drift:
    """Test one window; the same seed draws the same permutations."""
    pooled = torch.cat([window_WF, reference_RF]).double()
    kernel = _kernel(pooled)
    images, window = len(pooled), len(window_WF)
    permutations = min(LARGEST, max(PERMUTATIONS, math.ceil(10 / false_alarms) - 1))
    generator = torch.Generator().manual_seed(seed)
    member = torch.zeros(images, permutations + 1, dtype=torch.float64)  # column 0: the window as it is
    member[:window, 0] = 1
    drawn = torch.rand(permutations, images, generator=generator).argsort(1)[:, :window]
    member[:, 1:].scatter_(0, drawn.T, 1.0)
    values = _discrepancies(kernel, member)
    # rounding must not decide between a permutation and its like
    p_value = float((values >= values[0] - 1e-12).double().mean())
    return Drift(float(values[0]), p_value, p_value <= false_alarms)


def _kernel(pooled: Tensor) -> Tensor:
    """exp(-d^2 / (2 m^2)) with m the median distance, and 0 on the diagonal."""
    distance = torch.cdist(pooled, pooled)
    off_diagonal = distance[~torch.eye(len(pooled), dtype=torch.bool)]
    width = off_diagonal.median().clamp_min(1e-12)
    return torch.exp(-distance.square() / (2 * width.square())).fill_diagonal_(0)


def _discrepancies(kernel: Tensor, member: Tensor) -> Tensor:
    """MMD^2 of each column of ``member``, which marks the images of one side by 1."""
    window = member[:, 0].sum()
    reference = len(member) - window
    within = (member * (kernel @ member)).sum(0)
    between = member.T @ kernel.sum(1) - within
    others = kernel.sum() - within - 2 * between
    return (
        within / (window * (window - 1)) + others / (reference * (reference - 1)) - 2 * between / (window * reference)
    )
