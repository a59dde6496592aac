"""The limits of the server. Standard library only, so the command line can show them as defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What one request may cost, and how requests are batched."""

    images: int = 32
    image_bytes: int = 20_000_000
    full_size_images: int = 5  # a request may hold this many images of ``image_bytes``, or more smaller ones
    form_bytes: int = 1_000_000  # of a request besides its images: names, headers, boundaries
    pixels: int = 50_000_000
    batch_size: int = 32  # images of all requests in one forward pass
    batching_window: float = 0.005  # seconds to wait for more requests before a forward pass

    @property
    def request_bytes(self) -> int:
        return min(self.images, self.full_size_images) * self.image_bytes + self.form_bytes
