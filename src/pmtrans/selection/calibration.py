"""How far a confidence can be believed: temperature scaling and expected calibration error.

Guo et al., On Calibration of Modern Neural Networks, ICML 2017, Sec. 4.2 (temperature) and Eq. 3 (ECE).

Calibrated probabilities: logits divided by the temperature that was fitted on the source hold-out. The order of the
classes never changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

import torch
from pydantic import Field
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn.functional import one_hot

from pmtrans.errors import ModelError
from pmtrans.selection.evidence import MANY_CLASSES, even_sample
from pmtrans.texts import TextError, checked

LOWEST, HIGHEST = 0.05, 20.0
Temperature = Annotated[float, Field(strict=True, ge=1e-3, le=1e6)]  # one that leaves probabilities finite


def fit_temperature(logits_NK: Tensor, labels_N: Tensor) -> float:
    """The temperature T that minimises the negative log-likelihood of softmax(logits / T) on held-out images.

    Labels are smoothed by 1 / (N + 2) (Platt, 1999): a hold-out without a single error would otherwise
    ask for T = 0, that is, for a certainty that N images cannot prove. The loss is convex in 1 / T.
    """
    images, classes = logits_NK.shape
    if classes > MANY_CLASSES:
        kept = even_sample(images, classes)
        logits_NK, labels_N, images = logits_NK[kept], labels_N[kept], len(kept)
    doubt = 1.0 / (images + 2)
    wanted_NK = one_hot(labels_N, classes).double() * (1.0 - doubt) + doubt / classes
    logits_NK = logits_NK.double()

    def negative_log_likelihood(log_temperature: float) -> float:
        return -(wanted_NK * (logits_NK / math.exp(log_temperature)).log_softmax(1)).sum(1).mean().item()

    bounds = (math.log(LOWEST), math.log(HIGHEST))
    found = minimize_scalar(negative_log_likelihood, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    return math.exp(found.x)


def cautious_temperature(logits_NK: Tensor, labels_N: Tensor) -> float:
    """The fitted temperature, but at least 1: an easy hold-out is no reason to be surer of a harder target."""
    return max(1.0, fit_temperature(logits_NK, labels_N))


def expected_calibration_error(probabilities_NK: Tensor, labels_N: Tensor, *, bins: int = 15) -> float:
    """Mean |confidence - accuracy| over equally wide bins of confidence, weighted by images; in [0, 1]."""
    confidence_N, predictions_N = probabilities_NK.double().max(1)
    surplus_N = confidence_N - (predictions_N == labels_N).double()
    bin_N = (confidence_N * bins).ceil().long().clamp(1, bins) - 1  # bins are open below, closed above
    sums = torch.zeros(bins, dtype=torch.float64).index_add_(0, bin_N, surplus_N)
    return sums.abs().sum().item() / len(labels_N)


def read_temperature(section: Mapping[str, Any]) -> float:
    """``temperature`` of the ``pmtrans`` section of a model folder's ``config.json``; 1.0 where none is stored."""
    try:
        return float(checked(section.get("temperature", 1.0), Temperature, "pmtrans.temperature"))
    except TextError as error:
        raise ModelError(f"config.json: {error}") from None


def calibrated_probabilities(logits_BK: Tensor, temperature: float) -> Tensor:
    """Softmax at the temperature, in float32 whatever the model computed in."""
    return (logits_BK.float() / temperature).softmax(1)
