"""Agreement on the line (Baek et al., NeurIPS 2022): the accuracy of source models by how often pairs of them agree.

Over models, probit(accuracy on the target) is linear in probit(accuracy on the source), and so is probit(agreement of
two models) with the same slope and intercept; agreement needs no labels. So the line is fitted to the pairs, and each
model's accuracy on the held-out source is put into it (the paper's ALine-S).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import NormalDist

import numpy as np
from torch import Tensor

from pmtrans.selection.agreement import agreement


def accuracies_on_the_line(source: Sequence[Tensor], target: Sequence[Tensor], source_labels_N: Tensor) -> list[float]:
    """Of each model, from the predictions of all on the held-out source and on the target."""
    pairs = list(combinations(range(len(source)), 2))
    x = np.array([_probit(agreement(source[i], source[j]), len(source[0])) for i, j in pairs])
    y = np.array([_probit(agreement(target[i], target[j]), len(target[0])) for i, j in pairs])
    slope, intercept = map(float, np.polyfit(x, y, 1)) if np.ptp(x) > 1e-6 else (1.0, float((y - x).mean()))
    right = [agreement(predicted_N, source_labels_N) for predicted_N in source]
    return [NormalDist().cdf(slope * _probit(share, len(source_labels_N)) + intercept) for share in right]


def _probit(share: float, images: int) -> float:
    """Of a share kept half an image off 0 and 1."""
    return NormalDist().inv_cdf(min(max(share, 0.5 / images), 1 - 0.5 / images))
