"""Protection against hostile requests: security headers, a limit on the body, and checked decoding of uploads."""

from __future__ import annotations

from fastapi import UploadFile
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from torch import Tensor

from pmtrans.data.gate import UnavailableImage
from pmtrans.data.image import UnreadableImage, receive_image
from pmtrans.data.transforms import Preprocessing, Transform
from pmtrans.errors import one_line
from pmtrans.serving.limits import Limits

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; img-src blob: data:; "
    "script-src 'unsafe-inline'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class SecurityHeaders:
    """Middleware: every response tells the browser to load nothing from other sites."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self.app(scope, receive, send_with_headers)


class BodyLimit:
    """Middleware: responds 413 as soon as a body is larger than allowed, or announces that it will be."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app = app
        self.limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        detail = f"the request has more than {self.limit} bytes"
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self.limit:
            await JSONResponse({"detail": detail}, 413, {"Connection": "close"})(scope, receive, send)
            return
        received = 0

        async def receive_and_count() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.limit:  # a chunked body: its size is not announced
                raise HTTPException(413, detail, {"Connection": "close"})
            return message

        await self.app(scope, receive_and_count, send)


def decode_upload(upload: UploadFile, transform: Transform, preprocessing: Preprocessing, limits: Limits) -> Tensor:
    """An uploaded file as the model's input, or a 4xx that says why not. Run it in a thread: decoding blocks."""
    name = one_line(upload.filename or "image", 100)
    if (upload.size or 0) > limits.image_bytes:
        raise HTTPException(413, f"{name}: {upload.size} bytes, {limits.image_bytes} allowed")
    try:
        image = receive_image(upload.file, name, preprocessing.resize_to, limits.pixels)
    except UnreadableImage as error:
        raise HTTPException(415, str(error)) from None
    except UnavailableImage:
        raise HTTPException(503, f"{name}: the server has too little memory or too many open files now") from None
    return transform(image)
