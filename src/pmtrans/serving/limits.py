"""What a request may cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Per request, but ``batch`` and ``wait_seconds``, which are the model's."""

    images: int = 32
    image_bytes: int = 20_000_000
    request_bytes: int = 100_000_000
    pixels: int = 50_000_000
    batch: int = 32
    wait_seconds: float = 0.005  # for company: requests of this while share a pass
