"""Speed of ``predict`` relative to the bare model, and its peak memory for different numbers of images.

python benchmarks/predict.py --images office31/webcam --weights deit_tiny_patch16_224.safetensors
python benchmarks/predict.py --memory 1000 50000

Speed: images per second of ``predict`` from files to CSV, over those of timm's forward on the same images as tensors
that are in memory already; rounds take turns, so that a busy machine slows both, and the processor's time is given
beside the clock's, as it says the same on a machine that is not quiet. ONNX Runtime, in float32 and with 8-bit weights,
on the same tensors. Memory: the largest resident set of process and workers, for two counts.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import timm
import timm.data
import torch
from PIL import Image

from pmtrans.backbones.create import create_backbone
from pmtrans.config import BackboneConfig
from pmtrans.data.loader import image_batches
from pmtrans.data.transforms import preprocessing_for
from pmtrans.inference.export.images import generated_images
from pmtrans.inference.export.onnx_file import OnnxModel
from pmtrans.inference.export.write import export_model
from pmtrans.inference.inputs import PathList, gather
from pmtrans.inference.predict_files import PredictOptions, predict_to_file
from pmtrans.inference.predictor import load
from pmtrans.machine import useful_workers
from pmtrans.model import Model
from pmtrans.run.model_folder import TrainedModel, save_model
from pmtrans.signals import StopRequest


def write_model(folder: Path, name: str, weights: str, size: int, classes: int = 31) -> Path:
    backbone = create_backbone(name, weights, size)
    preprocessing = preprocessing_for(timm.data.resolve_data_config({}, model=backbone.trunk), size, 0.875)
    names = tuple(f"class {number}" for number in range(classes))
    save_model(folder, TrainedModel(Model(backbone, classes), names, preprocessing, BackboneConfig(name=name)))
    return folder


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """On the clock, and of the processor (workers that have ended included)."""
    begin, used = time.perf_counter(), _processor()
    work()
    return time.perf_counter() - begin, _processor() - used


def _processor() -> float:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


def answer_all(runtime: OnnxModel, batches: list[torch.Tensor]) -> None:
    for batch in batches:
        runtime(batch.numpy())


def speed(given: argparse.Namespace, folder: Path) -> dict[str, object]:
    model = write_model(folder / "model", given.backbone, given.weights, given.size)
    found = gather([given.images], io.BytesIO())
    paths = PathList(found[i % len(found)] for i in range(given.count))
    predictor = load(model)
    bare = timm.create_model(f"local-dir:{model}", pretrained=True).eval()
    batches = [images for images, _ in image_batches(paths, predictor.trained.preprocessing, given.batch, 0)]
    workers = useful_workers(len(paths), given.batch) if given.workers is None else given.workers
    settings = PredictOptions(given.batch)

    def forward() -> None:
        with torch.inference_mode():
            for batch in batches:
                bare(batch)

    def predict() -> None:
        out = folder / "rows.csv"
        predict_to_file(predictor, model, paths, out, settings, workers, lambda images: None, StopRequest())

    works: dict[str, Callable[[], object]] = {"timm": forward, "predict": predict}
    if given.onnx:
        export_model(predictor.trained, folder / "model.onnx", "onnx", generated_images())
        export_model(predictor.trained, folder / "int8.onnx", "onnx", generated_images(), int8=True, tolerance=1.0)
        for name in ("model", "int8"):
            works[f"onnx {name}"] = partial(answer_all, OnnxModel(folder / f"{name}.onnx"), batches)
    forward()
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(given.rounds):
        for name, work in works.items():
            took[name].append(seconds(work))
    ratios = [bare[0] / ours[0] for bare, ours in zip(took["timm"], took["predict"], strict=True)]
    clock = {name: statistics.median(value[0] for value in values) for name, values in took.items()}
    processor = {name: statistics.median(value[1] for value in values) for name, values in took.items()}
    return {
        "images_per_second": {name: round(len(paths) / value, 1) for name, value in clock.items()},
        "processor_milliseconds_per_image": {n: round(1e3 * value / len(paths), 2) for n, value in processor.items()},
        "predict_over_timm": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "threads": torch.get_num_threads(),
        "workers": workers,
    }


def memory(counts: list[int], folder: Path) -> dict[int, float]:
    """Megabytes at their highest, the tree of processes together."""
    model = write_model(folder / "model", "pmtrans_digits_vit", "none", 24, 10)
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    peaks = {}
    for count in counts:
        images = folder / f"{count}"
        images.mkdir()
        for number in range(count):
            Image.fromarray(pixels).save(images / f"{number:07d}.png", compress_level=1)
        command = [sys.executable, "-c", "from pmtrans.cli import main; main()", "predict", str(model), str(images)]
        process = psutil.Popen(
            [*command, "--out", str(folder / f"{count}.csv"), "--workers", "1"], stderr=subprocess.DEVNULL
        )
        peak = 0
        while process.poll() is None:
            peak = max(peak, _resident(process))
            time.sleep(0.05)
        assert process.returncode == 0
        peaks[count] = round(peak / 1e6, 1)
    return peaks


def _resident(process: psutil.Process) -> int:
    total = 0
    for one in (process, *process.children(recursive=True)):
        try:
            total += one.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", help="a folder")
    parser.add_argument("--backbone", default="deit_tiny_patch16_224")
    parser.add_argument("--weights", default="none")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--count", type=int, default=512)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--onnx", action="store_true")
    parser.add_argument("--memory", type=int, nargs="+", metavar="COUNT")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = memory(given.memory, Path(folder)) if given.memory else speed(given, Path(folder))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
