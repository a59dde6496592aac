"""Requests per second and latency of ``pmtrans serve`` for each backend, beside bare timm.

python benchmarks/serving.py --seconds 30 --clients 8
python benchmarks/serving.py --backends eager openvino --workers 2 --json

Each client is a thread with one connection that sends one JPEG, waits for the answer and sends the next. The bare model
is timm's forward on one image at a time, decoded and transformed as the server does it, without a network: what a
loop in a notebook would reach. Clients and server share the machine, so that the numbers compare backends with each
other on this machine and promise none for another.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image
from predict import write_model

from pmtrans.inference.predictor import load

BACKENDS = ("eager", "onnx", "onnx-int8", "openvino")
BOUNDARY = "pmtrans-benchmark"


def photographs(count: int, size: int) -> list[bytes]:
    """JPEG files of smooth colours with noise, which cost as much to decode as photographs do."""
    random = np.random.default_rng(0)
    files = []
    for _ in range(count):
        coarse = Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)).resize((size, size))
        noisy = np.asarray(coarse) + random.normal(0, 12, (size, size, 3))
        buffer = io.BytesIO()
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=85)
        files.append(buffer.getvalue())
    return files


def form(file: bytes) -> bytes:
    """The body of a request with one image."""
    head = 'Content-Disposition: form-data; name="images"; filename="x.jpg"\r\nContent-Type: image/jpeg'
    return f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode() + file + f"\r\n--{BOUNDARY}--\r\n".encode()


def summary(latencies: list[float], seconds: float) -> dict[str, float]:
    milliseconds = 1e3 * np.array(latencies)
    return {
        "per_second": round(len(latencies) / seconds, 1),
        "median_ms": round(float(np.percentile(milliseconds, 50)), 1),
        "p99_ms": round(float(np.percentile(milliseconds, 99)), 1),
        "requests": len(latencies),
    }


def bare(model: Path, files: list[bytes], seconds: float) -> dict[str, float]:
    """timm alone: decode, transform, forward, one image after the other."""
    network = timm.create_model(f"local-dir:{model}", pretrained=True).eval()
    transform = load(model, "cpu").transform
    latencies: list[float] = []
    with torch.inference_mode():
        network(torch.zeros(1, 3, *network.pretrained_cfg["input_size"][1:]))
        begin = time.perf_counter()
        while (sent := time.perf_counter()) - begin < seconds:
            image = Image.open(io.BytesIO(files[len(latencies) % len(files)])).convert("RGB")
            network(transform(image)[None]).softmax(1).max(1)
            latencies.append(time.perf_counter() - sent)
    return summary(latencies, time.perf_counter() - begin)


def served(model: Path, backend: str, given: argparse.Namespace, files: list[bytes]) -> dict[str, float]:
    """A server of its own for one backend, and clients that ask it for ``seconds``."""
    command = [sys.executable, "-c", "from pmtrans.cli import main; main()", "serve", str(model), "--port", "0"]
    options = ["--backend", backend, "--workers", str(given.workers)]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            if not line:
                raise SystemExit(f"the server with --backend {backend} did not start")
            port = int(line.split()[2].rpartition(":")[2])
            ask(port, [form(file) for file in files], given.clients, min(2.0, given.seconds))  # warm
            begin = time.perf_counter()
            latencies = ask(port, [form(file) for file in files], given.clients, given.seconds)
            return summary(latencies, time.perf_counter() - begin)
        finally:
            server.send_signal(signal.SIGTERM)


def ask(port: int, bodies: list[bytes], clients: int, seconds: float) -> list[float]:
    """Seconds of every request of all clients; an answer other than 200 ends the measurement."""
    latencies: list[float] = []
    wrong: list[str] = []
    end = time.perf_counter() + seconds

    def client(first: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
        number = first
        while (sent := time.perf_counter()) < end and not wrong:
            connection.request("POST", "/predict?top=1", bodies[number % len(bodies)], headers)
            response = connection.getresponse()
            answer = response.read()
            if response.status != 200:
                wrong.append(f"{response.status}: {answer.decode()}")
                break
            latencies.append(time.perf_counter() - sent)
            number += 1
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise SystemExit(f"not answered: {wrong[0]}")
    return latencies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="deit_tiny_patch16_224")
    parser.add_argument("--weights", default="none")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--photograph", type=int, default=500, help="width and height of the images sent, in pixels")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    given = parser.parse_args()
    files = photographs(16, given.photograph)
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder) / "model", given.backbone, given.weights, given.size)
        rows = {"timm, one by one": bare(model, files, given.seconds)}
        for backend in given.backends:
            rows[backend] = served(model, backend, given, files)
    if given.json:
        setting = {name: getattr(given, name) for name in ("backbone", "size", "clients", "workers", "seconds")}
        print(json.dumps({**setting, "cores": os.cpu_count(), "rows": rows}))
        return
    print(
        f"{given.backbone}, {given.size} px, {given.clients} clients, {given.workers} workers, {os.cpu_count()} cores"
    )
    print("| | requests per second | median (ms) | 99th percentile (ms) |\n|---|---|---|---|")
    for name, row in rows.items():
        print(f"| {name} | {row['per_second']} | {row['median_ms']} | {row['p99_ms']} |")


if __name__ == "__main__":
    main()
