"""Workers around a small application: ``python small_workers.py COUNT LIMITS.json FOLDER HOW``; prints its address.

``HOW``: ``well``, or how the workers fail before they are ready: ``refused`` or ``ended``.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

from fastapi import FastAPI, Request, Response

from pmtrans.errors import ConfigError
from pmtrans.serving.limits import ConnectionLimits
from pmtrans.serving.metrics import Metrics
from pmtrans.serving.server import Front, Service
from pmtrans.serving.workers import serve_with_workers


def make(how: str) -> Service:
    if how == "refused":
        raise ConfigError("the model\nis broken")
    if how == "ended":
        os._exit(3)
    app, metrics = FastAPI(), Metrics()

    @app.get("/health")
    async def health() -> dict[str, int]:
        return {"pid": os.getpid()}

    @app.post("/predict")
    async def predict(request: Request) -> dict[str, int]:
        with metrics.images_in_work(1):
            return {"pid": os.getpid(), "bytes": len(await request.body())}

    @app.get("/metrics")
    async def numbers() -> Response:
        return Response(metrics.text())

    return Service(app, metrics)


if __name__ == "__main__":
    count, limits, folder, how = sys.argv[1:]
    front = Front(limits=ConnectionLimits(**json.loads(limits)))
    try:
        serve_with_workers(
            partial(make, how), int(count), front, 0, Path(folder), lambda address: print(address, flush=True)
        )
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}")
