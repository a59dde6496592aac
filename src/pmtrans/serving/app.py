"""The web application: predictions, health, readiness, metrics, and a page to drop images on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from typing import Annotated

import torch
from fastapi import FastAPI, File, Query, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException

from pmtrans.errors import one_line
from pmtrans.inference.predictor import Predictor
from pmtrans.machine import cores
from pmtrans.serving.answers import Answers, Health, Problem, Ready, answer, as_text
from pmtrans.serving.batching import Batcher
from pmtrans.serving.decoders import Decoders
from pmtrans.serving.keys import ApiKeys, RequireKey
from pmtrans.serving.limits import Limits
from pmtrans.serving.metrics import CONTENT_TYPE, Metrics
from pmtrans.serving.safety import BodyLimit, SecurityHeaders, decode_upload
from pmtrans.version import __version__

_PROBLEMS = {
    400: "the request is not a multipart form",
    401: "the service has API keys, and the request has none of them",
    413: "too many images, or too large",
    415: "not an image, or a broken one",
    422: "no images, or an invalid parameter",
    503: "the server has no room now; try again",
}
Images = Annotated[list[UploadFile], File(description="image files")]
Top = Annotated[int, Query(ge=1, le=1000, description="number of classes to return per image")]
Attention = Annotated[bool, Query(description="also return the attention map")]


def create_app(
    predictor: Predictor,
    limits: Limits | None = None,
    abstain_below: float = 0.0,
    keys: ApiKeys | None = None,
    metrics: Metrics | None = None,
    decoding_threads: int | None = None,
) -> FastAPI:
    """The application around one loaded model; uploads are not stored. Without ``keys`` everybody is answered."""
    limits = limits or Limits()
    metrics = metrics or Metrics()
    trained = predictor.trained
    batcher = Batcher(predictor, limits.batch_size, limits.batching_window)
    decoders = Decoders(decoding_threads or cores(), limits.decode_seconds)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await batcher.start()
        yield
        await batcher.stop()
        decoders.shutdown()

    app = FastAPI(
        title="pmtrans",
        version=__version__,
        description=f"{trained.backbone.name}, {len(trained.classes)} classes.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's page loads its scripts from the network
        redoc_url=None,
        redirect_slashes=False,  # a redirect would repeat the Host that was sent
    )
    app.add_middleware(BodyLimit, limit=limits.request_bytes)
    if keys is not None:
        app.add_middleware(RequireKey, keys=keys)
    app.add_middleware(SecurityHeaders)
    app.state.batcher = batcher
    _report_errors_in_one_line(app)
    _add_pages(app)

    @app.post(
        "/predict",
        responses={code: {"model": Problem, "description": text} for code, text in _PROBLEMS.items()},
        response_model_exclude_none=True,
    )
    async def predict(images: Images, top: Top = 5, attention: Attention = False) -> Answers:
        """Classify images. If one of them cannot be read, the request fails and names it."""
        if len(images) > limits.images:
            raise HTTPException(413, f"{len(images)} images at once, {limits.images} allowed")
        with metrics.images_in_work(len(images)):
            tensors = await asyncio.gather(
                *(decoders(decode_upload, upload, predictor.transform, trained.preprocessing, limits)
                  for upload in images)
            )  # fmt: skip
            outputs = await asyncio.gather(*(batcher(tensor, attention) for tensor in tensors))
        names = (upload.filename or "" for upload in images)
        rows = zip(names, outputs, strict=True)
        return Answers(predictions=[answer(name, *output, trained, top, abstain_below) for name, output in rows])

    @app.get("/health")
    async def health() -> Health:
        """Whether the service is alive, and its classes."""
        classes = [as_text(name) for name in trained.classes]
        backbone = trained.backbone.name
        return Health(version=__version__, backbone=backbone, classes=classes, needs_key=keys is not None)

    @app.get("/ready", responses={503: {"model": Problem, "description": "the model cannot predict now"}})
    async def ready() -> Ready:
        """Whether images are decoded and the model predicts. If its last pass failed, or none was made, one is made."""
        if decoders.are_held:
            raise HTTPException(
                503, f"each of {decoders.threads} decoders has held one image for {limits.decode_seconds:g} s"
            )
        if not batcher.works:
            size = trained.preprocessing.image_size
            try:
                await batcher(torch.zeros(3, size, size), attention=False)
            except Exception:  # whatever it is: no prediction, not ready
                raise HTTPException(503, "the model cannot predict now") from None
        return Ready()

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def numbers() -> Response:
        """Requests by path and status, their seconds, images predicted and in work, in Prometheus' text format."""
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    return app


def _report_errors_in_one_line(app: FastAPI) -> None:
    """Validation errors as ``{"detail": "one line"}``, like every other error."""

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        hint = " (send image files as multipart form data in the field 'images')" if "images" in first["loc"] else ""
        return JSONResponse({"detail": one_line(f"{where}: {first['msg']}{hint}")}, 422)


def _add_pages(app: FastAPI) -> None:
    """The pages for people; they load nothing from other sites."""
    folder = resources.files("pmtrans.serving")
    pages = {"/": "page.html", "/docs": "docs.html"}
    for path, file in pages.items():
        content = (folder / file).read_text(encoding="utf-8")

        async def page(content: str = content) -> HTMLResponse:
            return HTMLResponse(content)

        app.add_api_route(path, page, include_in_schema=False)
