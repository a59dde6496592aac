"""Listening, and stopping without losing a request."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from pmtrans.errors import ConfigError, one_line


class _AnnouncedServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()


def serve_until_stopped(app: FastAPI, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve; SIGINT or SIGTERM finishes the requests under way (for at most 30 s) and returns.

    Port 0 takes a free one; ``announce`` gets the address once it answers.
    """
    listener = _listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listener.getsockname()[1]}"
    config = uvicorn.Config(app, log_level="error", access_log=False, timeout_graceful_shutdown=30, backlog=2048)
    # uvicorn hands a signal on to the handler before it once it has stopped: that one has nothing left to do.
    previous = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        _AnnouncedServer(config, lambda: announce(address)).run([listener])
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        listener.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
    except OSError as error:
        said = one_line(error.strerror or error)
        raise ConfigError(f"Cannot listen on {one_line(host)} port {port}: {said}. Choose another --port.") from None
    return listener
