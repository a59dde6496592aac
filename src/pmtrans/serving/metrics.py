"""What a Prometheus server asks for: requests, their seconds, and images, of all workers together."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pmtrans.serving.limits import SHARED_METRICS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PATHS = ("/", "/docs", "/openapi.json", "/health", "/ready", "/metrics", "/predict")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """The numbers of one process; where workers share a folder, ``text`` adds up those of all."""

    def __init__(self) -> None:
        self._own = CollectorRegistry()
        self.requests = Counter(
            "pmtrans_requests", "Requests by path and status.", ["path", "status"], registry=self._own
        )
        self.seconds = Histogram(
            "pmtrans_request_seconds", "Seconds from the head of a request to the end of its answer.", ["path"],
            buckets=_SECONDS, registry=self._own,
        )  # fmt: skip
        self.images = Counter("pmtrans_images_predicted", "Images that were classified.", registry=self._own)
        self.in_work = Gauge(
            "pmtrans_images_in_work", "Images of requests that are not answered yet.", multiprocess_mode="livesum",
            registry=self._own,
        )  # fmt: skip

    @contextmanager
    def images_in_work(self, count: int) -> Iterator[None]:
        """Count images while they are predicted, and as predicted where that succeeds."""
        self.in_work.inc(count)
        try:
            yield
            self.images.inc(count)
        finally:
            self.in_work.dec(count)

    def text(self) -> bytes:
        """All numbers in Prometheus' text format."""
        if not os.environ.get(SHARED_METRICS):
            return generate_latest(self._own)
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        return generate_latest(shared)


class Measured:
    """Middleware, around all others: counts every request, refused ones included."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = "none"  # the client left before an answer began

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        begin = time.monotonic()
        path = scope["path"] if scope["path"] in PATHS else "other"  # strangers must not make new series
        try:
            await self.app(scope, receive, send_and_note)
        finally:
            self.metrics.requests.labels(path, status).inc()
            self.metrics.seconds.labels(path).observe(time.monotonic() - begin)
