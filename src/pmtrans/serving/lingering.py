"""Read what is left of a request's body before its connection closes.

A socket that is closed with unread bytes resets the connection, and a client that is still sending may lose the answer
that says why it was refused. So the whole answer is sent first, then the rest of the body is read and thrown away, and
only then the answer ends.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pmtrans.serving.limits import ConnectionLimits


class LingeringClose:
    """Middleware: an answer that comes before the end of its request waits for that end, within limits."""

    def __init__(self, app: ASGIApp, limits: ConnectionLimits) -> None:
        self.app = app
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        received_whole = False

        async def receive_and_note() -> Message:
            nonlocal received_whole
            message = await receive()
            received_whole = not message.get("more_body", False)  # a disconnect has none either
            return message

        async def discard() -> None:
            size = 0
            while not received_whole and size < self.limits.linger_bytes:
                size += len((await receive_and_note()).get("body", b""))

        async def send_and_linger(message: Message) -> None:
            last = message["type"] == "http.response.body" and not message.get("more_body", False)
            if not last or received_whole:
                await send(message)
                return
            await send({**message, "more_body": True})
            with suppress(asyncio.TimeoutError):  # its own class before Python 3.11
                await asyncio.wait_for(discard(), self.limits.linger_seconds)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        await self.app(scope, receive_and_note, send_and_linger)
