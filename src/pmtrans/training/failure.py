"""A loss or gradient that is no number stops the run before the step, and leaves behind what explains it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pmtrans.data.batch import Batch
from pmtrans.data.domain import Domain
from pmtrans.errors import TrainingError, one_line
from pmtrans.run.files import write_json

_ADVICE = [  # the same command would stop at the same step again
    "a new --out with a tenth of train.learning_rate, or with train.warmup_steps=100",
    "train.clip=1.0 limits single bad batches",
    "train.precision=fp32 rules out half precision",
    "pmtrans check --source ... --target ... finds broken images among the ones listed here",
]


def stop_if_not_finite(
    folder: Path,
    step: int,
    batches: list[Batch],
    domains: tuple[Domain, Domain],
    values: Mapping[str, Any],
    rates: Mapping[str, float],
    gradients: Iterable[Tensor] = (),
) -> None:
    """Raise unless loss, gradient norm and ``gradients`` are finite; the parameters have not moved yet.

    ``gradients`` are those that the norm leaves out: the ascending players', a few numbers.
    """
    watched = [torch.as_tensor(values[name]).float().detach() for name in ("loss", "gradient_norm")]
    watched += [gradient.float().abs().amax() for gradient in gradients]
    device = watched[0].device
    if bool(torch.stack([value.to(device) for value in watched]).isfinite().all()):  # here the host waits
        return
    path = folder / f"not-finite-step-{step:08d}.json"
    capture = {
        "step": step,
        "values": {name: repr(v.item() if isinstance(v, Tensor) else v) for name, v in values.items()},
        "learning_rates": dict(rates),
        "source_index": [batch.source_index.tolist() for batch in batches],
        "target_index": [batch.target_index.tolist() for batch in batches],
        "source_images": [domains[0].paths[i] for batch in batches for i in batch.source_index.tolist()],
        "target_images": [domains[1].paths[i] for batch in batches for i in batch.target_index.tolist()],
        "what_to_try": _ADVICE,
    }
    with suppress(OSError):  # on a full disk the reason matters more than the capture
        write_json(path, capture)
    raise TrainingError(
        f"Loss or gradient is not finite at step {step}: stopped before the step, nothing was overwritten. "
        f"See {one_line(path)!r}; try {_ADVICE[0]}."
    )
