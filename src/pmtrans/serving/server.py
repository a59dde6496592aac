"""Run the application with uvicorn; a stop finishes the requests in progress first."""

from __future__ import annotations

import logging
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import uvicorn
from starlette.types import ASGIApp

from pmtrans.errors import ConfigError, one_line
from pmtrans.serving.connections import WAITING, HealthReserve, RateLimitedLog, Turns, limited_protocol
from pmtrans.serving.hosts import OwnNames
from pmtrans.serving.limits import ConnectionLimits
from pmtrans.serving.lingering import LingeringClose
from pmtrans.serving.metrics import Measured, Metrics

# Seconds for which a thread keeps the interpreter while others wait for it. The event loop gives it away at every call
# of a socket; with Python's 5 ms, thousands of connections wait for threads that decode and predict.
TURN = 0.0002


class Service(NamedTuple):
    """An application, and where its requests are counted."""

    app: ASGIApp
    metrics: Metrics | None = None


class Front(NamedTuple):
    """How a service meets the network. ``names``: what else the server may be called in ``Host``."""

    host: str = "127.0.0.1"
    names: Sequence[str] = ()
    limits: ConnectionLimits = ConnectionLimits()


class _AnnouncedServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(WAITING)  # asyncio has one number for how many wait and how many are taken at once
        self._announce()


def serve_until_stopped(
    app: ASGIApp,
    host: str,
    port: int,
    announce: Callable[[str], None],
    names: Sequence[str] = (),
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008  (immutable)
    metrics: Metrics | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, finish the requests in progress (for at most 10 s), and return.

    Port 0 takes a free one; ``announce`` is called with the address once the server accepts requests. ``names``:
    what else the server may be called in ``Host``.
    """
    listener = listen(host, port)
    address = address_of(listener, host)
    run_server(Service(app, metrics), listener, Front(host, names, limits), lambda: announce(address))


def run_server(
    service: Service, listener: socket.socket, front: Front, announce: Callable[[], None], workers: int = 1
) -> None:
    """Answer what comes to ``listener``, which this process may share with other ``workers``, until a signal."""
    app: ASGIApp = OwnNames(HealthReserve(Turns(service.app, front.limits.in_work)), (front.host, *front.names))
    if service.metrics is not None:
        app = Measured(app, service.metrics)
    config = uvicorn.Config(
        LingeringClose(app, front.limits),
        http=limited_protocol(front.limits),
        ws="none",
        loop="asyncio",
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=front.limits.stop_seconds,
        backlog=front.limits.taken_at_once if workers == 1 else 1,  # one at a time: the other workers take the next
    )
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addFilter(RateLimitedLog())
    # Once stopped, uvicorn raises the signal again for the previous handler, which has nothing left to do here.
    previous = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    turn = sys.getswitchinterval()
    sys.setswitchinterval(TURN)
    try:
        _AnnouncedServer(config, announce).run([listener])
    finally:
        sys.setswitchinterval(turn)
        for number, handler in previous.items():
            signal.signal(number, handler)
        listener.close()


def address_of(listener: socket.socket, host: str) -> str:
    url_host = f"[{host}]" if ":" in host else host  # IPv6
    return f"http://{url_host}:{listener.getsockname()[1]}"


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound, and does not accept yet."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, ValueError) as error:  # the latter: text that cannot be a host's name
        reason = one_line(getattr(error, "strerror", None) or error)
        raise ConfigError(
            f"Cannot listen on {one_line(host)} port {port}: {reason}. Choose another --host or --port."
        ) from None
    return listener
