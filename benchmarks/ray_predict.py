"""``predict --engine ray`` beside one process: the time of each, and the rows when a worker is killed.

python benchmarks/ray_predict.py --images 600

Generated images, DeiT-tiny at 224 pixels with random weights. In the second run with Ray, an actor that computes is
killed (SIGKILL) as soon as the journal has its first rows. Both files must be those of one process, byte for byte.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import timm.data
import torch
from PIL import Image

from pmtrans.backbones.create import create_backbone
from pmtrans.config import BackboneConfig
from pmtrans.data.transforms import preprocessing_for
from pmtrans.model import Model
from pmtrans.run.model_folder import TrainedModel, save_model

BACKBONE = "deit_tiny_patch16_224"
BATCH = 4  # a piece of work is eight batches: small ones give every actor many


def write_images(folder: Path, count: int) -> Path:
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(count):
        coarse = Image.fromarray(random.integers(0, 256, (16, 16, 3), dtype=np.uint8))
        coarse.resize((256, 256), Image.Resampling.BICUBIC).save(folder / f"{number:05d}.jpg")
    return folder


def write_model(folder: Path) -> Path:
    torch.manual_seed(0)
    model = Model(create_backbone(BACKBONE, "none", 224), 10)
    for parameter in model.head.parameters():
        torch.nn.init.normal_(parameter)  # decided answers, so that a wrong row would show
    preprocessing = preprocessing_for(timm.data.resolve_data_config({}, model=model.backbone.trunk), 224, 0.875)
    names = tuple(f"class {number}" for number in range(10))
    save_model(folder, TrainedModel(model, names, preprocessing, BackboneConfig(name=BACKBONE, weights="none")))
    return folder


def predict(model: Path, images: Path, out: Path, *flags: str, kill: bool = False) -> tuple[float, int]:
    """Seconds, and the number of killed workers."""
    command = [sys.executable, "-m", "pmtrans", "predict", str(model), str(images), "--out", str(out)]
    begin = time.perf_counter()
    process = subprocess.Popen([*command, "--batch-size", str(BATCH), "--device", "cpu", *flags])
    killed = kill_worker(process, out.with_name(f".{out.name}.partial") / "rows.jsonl") if kill else 0
    if process.wait():
        raise SystemExit(f"predict ended with {process.returncode}")
    return time.perf_counter() - begin, killed


def kill_worker(process: subprocess.Popen[bytes], journal: Path) -> int:
    """Kill an actor that computes, once some rows are written and others are still to come."""
    while process.poll() is None:
        if journal.is_file() and journal.stat().st_size:
            for child in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if "ray::MapWorker" in " ".join(child.cmdline()):
                        child.kill()
                        return 1
        time.sleep(0.05)
    return 0


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--images", type=int, default=600)
    count = arguments.parse_args().images
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        images, model = write_images(folder / "images", count), write_model(folder / "model")
        files = {}
        for name, flags in (("one process", ()), ("ray", ("--engine", "ray")), ("ray, killed", ("--engine", "ray"))):
            out = folder / name / "rows.csv"
            out.parent.mkdir()
            seconds, killed = predict(model, images, out, *flags, kill="killed" in name)
            files[name] = out.read_bytes()
            with out.open(newline="") as file:
                rows = Counter(os.path.basename(row["path"]) for row in csv.DictReader(file))
            lost, twice = count - len(rows), sum(number > 1 for number in rows.values())
            same = files[name] == files["one process"]
            print(
                f"{name}: {seconds:.1f} s, {killed} killed, {lost} lost, {twice} twice, "
                f"{'the same' if same else 'OTHER'} bytes",
                flush=True,
            )


if __name__ == "__main__":
    main()
