"""From an uploaded file to what the model sees, or to the 4xx that says why not."""

from __future__ import annotations

from fastapi import UploadFile
from starlette.exceptions import HTTPException
from torch import Tensor

from pmtrans.data.image import UnreadableImage, receive_image
from pmtrans.data.transforms import Preprocessing, Transform
from pmtrans.errors import one_line
from pmtrans.serving.limits import Limits


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
