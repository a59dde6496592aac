"""The web application: ``POST /predict``, ``GET /health``, and a page to drop images on."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib import resources
from typing import Annotated, Any

from fastapi import FastAPI, File, Query, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException
from torch import Tensor

import pmtrans
from pmtrans.data.image import decode_image, unreadable_reason
from pmtrans.errors import one_line
from pmtrans.inference.prediction import predictions
from pmtrans.inference.predictor import Predictor
from pmtrans.serving.answers import Answer, Answers, AttentionMap, Health, Problem, Scored
from pmtrans.serving.batching import Batcher
from pmtrans.serving.limits import BodyLimit, Limits

_SAYS = {
    400: "the request is no multipart form",
    413: "too many images, or too large",
    415: "not an image, or a broken one",
    422: "no images, or a wrong parameter",
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; img-src blob: data:; "
    "script-src 'unsafe-inline'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def create_app(predictor: Predictor, limits: Limits | None = None, abstain_below: float = 0.0) -> FastAPI:
    """The application around one loaded model; it keeps nothing of what it is sent."""
    limits = limits or Limits()
    batcher = Batcher(predictor, limits.batch, limits.wait_seconds)
    decoders = ThreadPoolExecutor(os.cpu_count() or 1, "decode")  # also bounds how many images are open at once

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await batcher.start()
        yield
        await batcher.stop()
        decoders.shutdown()

    app = FastAPI(
        title="pmtrans",
        version=pmtrans.__version__,
        description=f"{predictor.trained.backbone.name}, {len(predictor.classes)} classes.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own page loads its scripts from the network
        redoc_url=None,
    )
    app.add_middleware(BodyLimit, limit=limits.request_bytes)
    _answer_in_one_line(app)

    @app.post(
        "/predict",
        responses={code: {"model": Problem, "description": text} for code, text in _SAYS.items()},
        response_model_exclude_none=True,
    )
    async def predict(
        images: Annotated[list[UploadFile], File(description=f"1 to {limits.images} image files")],
        top: Annotated[int, Query(ge=1, le=1000, description="this many classes each")] = 5,
        attention: Annotated[bool, Query(description="also where the model looked")] = False,
    ) -> Answers:
        """Classify images; if one of them cannot be read, the request fails and says which."""
        if len(images) > limits.images:
            raise HTTPException(413, f"{len(images)} images at once, {limits.images} allowed")
        loop = asyncio.get_running_loop()
        tensors = [await loop.run_in_executor(decoders, _decode, upload, predictor, limits) for upload in images]
        rows = await asyncio.gather(*(batcher(tensor, attention) for tensor in tensors))
        answers = [_answer(upload, *row) for upload, row in zip(images, rows, strict=True)]
        return Answers(predictions=[answer for answer in answers])

    def _answer(upload: UploadFile, logits: Tensor, scores: Tensor | None) -> Answer:
        (said,) = predictions(logits[None], predictor.classes, predictor.trained.temperature, abstain_below)
        assert said.label is not None and said.probability is not None and said.entropy is not None
        named = [Scored(label=name, probability=value) for name, value in said.top(top_of(upload))]
        return Answer(
            name=upload.filename or "",
            label=said.label,
            probability=said.probability,
            entropy=said.entropy,
            abstain=said.abstain,
            top=named,
            attention=None if scores is None else _attention(scores, predictor),
        )

    def top_of(upload: UploadFile) -> int:
        return 5

    @app.get("/health")
    async def health() -> Health:
        """Whether the service can answer."""
        return Health(
            version=pmtrans.__version__, backbone=predictor.trained.backbone.name, classes=list(predictor.classes)
        )

    page = _page("page.html")
    description = _page("docs.html")

    @app.get("/", include_in_schema=False)
    async def index() -> HTMLResponse:
        return HTMLResponse(page)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(description)

    return app
