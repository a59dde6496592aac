"""How many steps there are, and learning rates as pure functions of the step: resuming needs no state."""

from __future__ import annotations

import math

from pmtrans.config import TrainConfig
from pmtrans.data.sampling import steps_per_epoch


def count_steps(config: TrainConfig, source_images: int, target_images: int, batch_size: int) -> tuple[int, int]:
    """(all steps, steps of an epoch)."""
    epoch = config.epoch_steps or steps_per_epoch(source_images, target_images, batch_size * config.accumulate)
    return min(config.epochs * epoch, config.max_steps or config.epochs * epoch), epoch


def learning_rate_factor(schedule: str, step: int, steps: int, warmup_steps: int) -> float:
    """What the base rate is multiplied with. ``inverse``: (1 + 0.001 i)^-0.75; ``cosine``: down to 0."""
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    if schedule == "inverse":
        return float((1 + 0.001 * step) ** -0.75)
    if schedule == "cosine":
        progress = (step - warmup_steps) / max(1, steps - warmup_steps)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return 1.0
