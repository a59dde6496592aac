"""Calibrated probabilities: logits divided by the temperature that was fitted on the source hold-out.

(Guo et al., "On Calibration of Modern Neural Networks", ICML 2017. The order of the classes never changes.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from pmtrans.errors import ModelError, one_line


def read_temperature(section: Mapping[str, Any]) -> float:
    """``temperature`` of the ``pmtrans`` section of a model folder's ``config.json``; 1.0 where none is stored."""
    stored = section.get("temperature", 1.0)
    if isinstance(stored, bool) or not isinstance(stored, (int, float)) or not (math.isfinite(stored) and stored > 0):
        raise ModelError(f"config.json: pmtrans.temperature is {one_line(stored, 60)!r}, not a number above 0.")
    return float(stored)


def calibrated_probabilities(logits_BK: Tensor, temperature: float) -> Tensor:
    """Softmax at the temperature, in float32 whatever the model computed in."""
    return (logits_BK.float() / temperature).softmax(1)
