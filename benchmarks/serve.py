"""Many concurrent requests on loopback: is each one answered, and does the server's memory stay constant?

python benchmarks/serve.py --requests 1000 --rounds 5
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
import psutil
from PIL import Image
from predict import write_model


def png(seed: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


async def send_all(address: str, count: int) -> int:
    """The number of responses that carry the name of their request."""
    limits = httpx.Limits(max_connections=count, max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=300, trust_env=False, limits=limits) as client:
        files = ([("images", (f"{seed}.png", png(seed)))] for seed in range(count))
        requests = (client.post(f"{address}/predict", files=sent) for sent in files)
        responses = await asyncio.gather(*requests, return_exceptions=True)
    right = 0
    for seed, response in enumerate(responses):
        if isinstance(response, httpx.Response) and response.status_code == 200:
            right += response.json()["predictions"][0]["name"] == f"{seed}.png"
    return right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder) / "model", "pmtrans_digits_vit", "none", 24, 10)
        command = [sys.executable, "-c", "from pmtrans.cli import main; main()", "serve", str(model), "--port", "0"]
        server = psutil.Popen(command, stdout=subprocess.PIPE, text=True)
        address = server.stdout.readline().split()[2]
        answered, resident, took = [], [], []
        try:
            for _ in range(given.rounds):
                begin = time.perf_counter()
                answered.append(asyncio.run(send_all(address, given.requests)))
                took.append(round(time.perf_counter() - begin, 2))
                resident.append(round(server.memory_info().rss / 1e6, 1))
        finally:
            server.send_signal(signal.SIGTERM)
            code = server.wait(60)
    print(json.dumps({"answered": answered, "seconds": took, "megabytes": resident, "exit_code": code}))


if __name__ == "__main__":
    main()
