"""What a request may cost.

Around every request: nothing larger than allowed is held, and a browser is told to load nothing from elsewhere.

From an uploaded file to what the model sees, or to the 4xx that says why not.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import UploadFile
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from torch import Tensor

from pmtrans.data.image import UnreadableImage, receive_image
from pmtrans.data.transforms import Preprocessing, Transform
from pmtrans.errors import one_line


@dataclass(frozen=True)
class Limits:
    """Per request, but ``batch`` and ``wait_seconds``, which are the model's."""

    images: int = 32
    image_bytes: int = 20_000_000
    request_bytes: int = 100_000_000
    pixels: int = 50_000_000
    batch: int = 32
    wait_seconds: float = 0.005  # for company: requests of this while share a pass


_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; img-src blob: data:; "
    "script-src 'unsafe-inline'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class SafeHeaders:
    """Adds the headers to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def adding(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self.app(scope, receive, adding)


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


def decode_upload(upload: UploadFile, transform: Transform, preprocessing: Preprocessing, limits: Limits) -> Tensor:
    """Runs in a thread: decoding takes longer than an event loop may wait."""
    name = one_line(upload.filename or "image", 100)
    if (upload.size or 0) > limits.image_bytes:
        raise HTTPException(413, f"{name}: {upload.size} bytes, {limits.image_bytes} allowed")
    try:
        image = receive_image(upload.file, name, preprocessing.resize_to, limits.pixels)
    except UnreadableImage as error:
        raise HTTPException(415, str(error)) from None
    return transform(image)
