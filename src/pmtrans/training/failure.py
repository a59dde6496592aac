"""A loss or gradient that is no number stops the run before the step, and leaves behind what explains it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pmtrans.data.batch import Batch
from pmtrans.errors import TrainingError, one_line
from pmtrans.run.files import write_json

_ADVICE = [
    "resume with a lower train.learning_rate (a tenth), or with train.warmup_steps=100",
    "train.clip=1.0 limits single bad batches",
    "train.precision=fp32 rules out half precision",
    "pmtrans check --source ... --target ... finds broken images among the ones listed here",
]


def stop_if_not_finite(
    folder: Path, step: int, batches: list[Batch], values: Mapping[str, Any], rates: Mapping[str, float]
) -> None:
    """Raise unless loss and gradient norm are finite; the parameters have not moved yet."""
    watched = torch.stack([torch.as_tensor(values[name]).float().detach() for name in ("loss", "gradient_norm")])
    if bool(watched.isfinite().all()):  # the one point of the step where the host waits for the device
        return
    path = folder / f"not-finite-step-{step:08d}.json"
    write_json(
        path,
        {
            "step": step,
            "values": {name: repr(v.item() if isinstance(v, Tensor) else v) for name, v in values.items()},
            "learning_rates": dict(rates),
            "source_index": [batch.source_index.tolist() for batch in batches],
            "target_index": [batch.target_index.tolist() for batch in batches],
            "what_to_try": _ADVICE,
        },
    )
    raise TrainingError(
        f"Loss or gradient is not finite at step {step}: stopped before the step, nothing was overwritten. "
        f"See {one_line(path)!r}; try {_ADVICE[0]}."
    )
