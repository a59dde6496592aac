"""Connections that cost little: time limits for headers and bodies, counts in all and per client, a lane for health.

A connection beyond the limits gets a place in a small reserve, where ``GET /health`` alone is answered and time is
short; anything else is refused by its first bytes, before it is parsed. When the reserve is full too, its oldest
connection makes room. So clients, however many and however slow, hold neither all descriptors nor the health check.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import Counter, deque
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from pmtrans.serving.limits import ConnectionLimits

RESERVED = "reserved"  # in a request's state: its connection came in over the limit
HEALTH = b"GET /health"
_DETAIL = b'{"detail":"too many connections: try again"}'
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_DETAIL), _DETAIL)
)
WAITING = 4096  # connections that the kernel keeps until they are taken; one that it drops comes back after a second
_DESCRIPTORS = 128  # for files, the model, uploads on disk


class Connections:
    """All open connections of one server."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.most = min(limits.in_all, max(16, _descriptors() - _DESCRIPTORS - 2 * limits.reserve))
        self.per_client: Counter[str] = Counter()
        self.ordinary = 0
        self.reserve: deque[LimitedProtocol] = deque()
        self.refused: deque[LimitedProtocol] = deque()  # answered, and the rest of what they send is awaited

    def admit(self, connection: LimitedProtocol, client: str) -> bool:
        """Whether it may do everything; otherwise it is in the reserve."""
        if self.ordinary < self.most and self.per_client[client] < self.limits.per_client:
            self.ordinary += 1
            self.per_client[client] += 1
            return True
        self._add(connection, self.reserve)
        return False

    def refuse(self, connection: LimitedProtocol) -> None:
        """Its place in the reserve is free again."""
        if connection in self.reserve:
            self.reserve.remove(connection)
        self._add(connection, self.refused)

    def _add(self, connection: LimitedProtocol, those: deque[LimitedProtocol]) -> None:
        while len(those) >= self.limits.reserve:
            those.popleft().abort()
        those.append(connection)

    def forget(self, connection: LimitedProtocol, client: str, ordinary: bool) -> None:
        if ordinary:
            self.ordinary -= 1
            self.per_client[client] -= 1
            if not self.per_client[client]:
                del self.per_client[client]
            return
        for those in (self.reserve, self.refused):
            if connection in those:
                those.remove(connection)


def limited_protocol(limits: ConnectionLimits) -> type[LimitedProtocol]:
    """The protocol class for one server."""
    return type("Protocol", (LimitedProtocol,), {"all": Connections(limits)})


class LimitedProtocol(H11Protocol):
    """One connection, closed when its request takes too long to arrive or its answer to be read."""

    all: Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._ordinary = self.all.admit(self, self._address)
        if not self._ordinary:
            self.app_state = {**self.app_state, RESERVED: True}
        self._received, self._is_refused = 0, False
        self._since: float | None = time.monotonic()  # when the present request began; None: between two requests
        self._watch = self.loop.call_later(1.0, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.cancel()
        self.all.forget(self, self._address, self._ordinary)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return  # the rest is read and thrown away, so that the client can read why
        if not self._ordinary and not self._received and not data.startswith(HEALTH[: len(data)]):
            self._refuse()
            return
        if self._since is None:
            self._received, self._since = 0, time.monotonic()
        self._received += len(data)
        super().data_received(data)

    def on_response_complete(self) -> None:
        self._since = None
        super().on_response_complete()  # starts the next request, if its first bytes are here already
        if not self.cycle.response_complete:
            self._received, self._since = 0, time.monotonic()

    def _refuse(self) -> None:
        self._is_refused, self._since = True, time.monotonic()
        self.all.refuse(self)
        self.transport.write(REFUSAL)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def abort(self) -> None:
        self.transport.abort()

    def _look(self) -> None:
        if self._since is not None and self._is_too_slow(time.monotonic() - self._since):
            self.abort()
        else:
            self._watch = self.loop.call_later(1.0, self._look)

    def _is_too_slow(self, seconds: float) -> bool:
        limits = self.all.limits
        if self._is_refused:
            return seconds > limits.linger_seconds
        if self.cycle is None or self.cycle.response_complete:  # headers, of the first or of a later request
            return seconds > (limits.header_seconds if self._ordinary else limits.reserve_seconds)
        if self.cycle.more_body and not self.flow.read_paused:
            return seconds > limits.body_grace and self._received < limits.body_rate * seconds
        return seconds > limits.answer_seconds


class HealthReserve:
    """Middleware: over a reserved connection, all but ``/health`` is refused at once."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("state", {}).get(RESERVED) and scope["path"] != "/health":
            refusal = JSONResponse({"detail": "too many connections: try again"}, 503, {"Connection": "close"})
            await refusal(scope, receive, send)
            return
        await self.app(scope, receive, send)


class Turns:
    """Middleware: so many requests are worked on at a time; the others wait, which costs nothing.

    A request waits with its last bytes, so a client that sends slowly holds no turn. Health checks never wait.
    """

    def __init__(self, app: ASGIApp, count: int) -> None:
        self.app = app
        self.free = asyncio.Semaphore(count)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == "/health":
            await self.app(scope, receive, send)
            return
        has_turn = False

        async def receive_in_turn() -> Message:
            nonlocal has_turn
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False) and not has_turn:
                await self.free.acquire()
                has_turn = True
            return message

        try:
            await self.app(scope, receive_in_turn, send)
        finally:
            if has_turn:
                self.free.release()


class RateLimitedLog(logging.Filter):
    """At most ``count`` records in ``seconds``; the next one that passes says how many were left out.

    Requests that a stop cancels are no errors: the server says in one line how many there were.
    """

    def __init__(self, count: int = 10, seconds: float = 60.0) -> None:
        super().__init__()
        self.count, self.seconds = count, seconds
        self._passed: deque[float] = deque()
        self._dropped = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError):
            return False
        now = time.monotonic()
        while self._passed and now - self._passed[0] > self.seconds:
            self._passed.popleft()
        if len(self._passed) >= self.count:
            self._dropped += 1
            return False
        self._passed.append(now)
        if self._dropped:
            record.msg = f"({self._dropped} lines left out) {record.msg}"
            self._dropped = 0
        return True


def _descriptors() -> int:
    """How many files this process may have open."""
    if sys.platform == "win32":
        return 8192
    import resource

    soft: Any = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 20 if soft == resource.RLIM_INFINITY else int(soft)
