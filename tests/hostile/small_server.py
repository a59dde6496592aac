"""The real server around a small application: ``python small_server.py LIMITS.json``; prints its address."""

from __future__ import annotations

import json
import resource
import sys

from fastapi import FastAPI, Request

from pmtrans.serving.limits import ConnectionLimits
from pmtrans.serving.server import serve_until_stopped

app = FastAPI(redirect_slashes=False)


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@app.post("/predict")
async def predict(request: Request) -> dict[str, int]:
    return {"bytes": len(await request.body())}


@app.get("/fails")
async def fails() -> None:
    raise ZeroDivisionError("a bug")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
    serve_until_stopped(
        app,
        "127.0.0.1",
        0,
        lambda address: print(address, flush=True),
        ["models.example.org"],
        ConnectionLimits(**json.loads(sys.argv[1])),
    )
