"""The limits of the server. Standard library only, so the command line can show them as defaults."""

from __future__ import annotations

from dataclasses import dataclass

SHARED_METRICS = "PROMETHEUS_MULTIPROC_DIR"  # the folder of the workers' numbers; prometheus_client reads it early


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
    decode_seconds: float = 30.0  # of one image; the service is not ready while every decoder takes longer

    @property
    def request_bytes(self) -> int:
        return min(self.images, self.full_size_images) * self.image_bytes + self.form_bytes


@dataclass(frozen=True)
class ConnectionLimits:
    """What connections may cost, in numbers and in seconds."""

    in_all: int = 512
    per_client: int = 256
    reserve: int = 128  # more, for health checks
    in_work: int = 32  # requests
    header_seconds: float = 10.0
    reserve_seconds: float = 2.0
    body_grace: float = 10.0  # seconds after which a body must have come at ``body_rate``
    body_rate: float = 20_000.0  # bytes a second
    answer_seconds: float = 120.0  # from the first byte of a request to the last of its answer
    linger_seconds: float = 2.0  # for the rest of a body whose request is answered already
    linger_bytes: int = 10_000_000
    stop_seconds: int = 10  # for open requests, when the server is stopped

    @property
    def taken_at_once(self) -> int:
        """Connections taken in one turn of the event loop.

        A health check is answered some four turns after its connection was taken, others are refused after one or two;
        until then so few may come that none of them displaces it from the reserve.
        """
        return max(1, self.reserve // 8)
