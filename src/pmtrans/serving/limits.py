"""What a request may cost, enforced while it arrives: nothing larger is ever held."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(frozen=True)
class Limits:
    """Per request, but ``batch`` and ``wait_seconds``, which are the model's."""

    images: int = 32
    image_bytes: int = 20_000_000
    request_bytes: int = 100_000_000
    pixels: int = 50_000_000
    batch: int = 32
    wait_seconds: float = 0.005  # for company: requests of this while share a pass


class BodyLimit:
    """Answers 413 as soon as a body is, or says that it will be, larger than allowed."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app = app
        self.limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        said = f"the request has more than {self.limit} bytes"
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self.limit:
            await JSONResponse({"detail": said}, 413, {"Connection": "close"})(scope, receive, send)
            return
        received = 0

        async def counting() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.limit:  # chunked: the size is known only now
                raise HTTPException(413, said, {"Connection": "close"})
            return message

        await self.app(scope, counting, send)
