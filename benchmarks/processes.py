"""The same training by 1, 2 and 4 processes of one thread each, from folders and from shards: results and time.

python benchmarks/processes.py --processes 1 2 4 --steps 60

The demo's digits, PMTrans from the probe. The first row is what the others are compared with: the largest difference of
any weight of the shipped model, and how many target images get another class. Several processes add up gradients
in another order, so that weights differ by rounding; folders and shards with as many processes must be equal.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from pmtrans.backbones.digits_vit import weights_path
from pmtrans.data.demo.digits import write_digits
from pmtrans.data.packing import PackOptions, pack_folder
from pmtrans.demo import SETTINGS
from pmtrans.inference.predictor import load
from pmtrans.run.folder import RunFolder
from pmtrans.run.metrics import read_metrics
from pmtrans.signals import StopRequest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=32, help="pairs of all processes together")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="pmtrans-processes-") as name:
        folder = Path(name)
        os.environ["PMTRANS_CACHE"] = str(folder / "cache")  # of the index of shards
        rows = measure(folder, given)
    print("| data | processes | images/s | target right | largest difference of a weight | other classes |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def measure(folder: Path, given: argparse.Namespace) -> list[list[str]]:
    """Train every way, and compare."""
    source, target = write_digits(folder / "digits")
    for domain in (source, target):
        pack_folder(domain, folder / "shards" / domain.name, PackOptions(500), False, StopRequest(), lambda _: None)
    places = {"folders": (source, target), "shards": (folder / "shards" / "source", folder / "shards" / "target")}
    rows, first = [], None
    for processes in given.processes:
        for data, domains in places.items():
            run = train(folder / f"{data}-{processes}", domains, processes, given)
            found = load_file(run.model / "model.safetensors"), classes_of(run, target)
            first = first or found
            lines = [line for line in read_metrics(run.metrics) if "images_per_second" in line]
            rate = sorted(line["images_per_second"] for line in lines)[len(lines) // 2]
            right = json.loads(run.summary.read_text(encoding="utf-8"))["adapted"]
            rows.append(
                [data, str(processes), f"{rate:.0f}", f"{100 * right:.2f} %", f"{largest(first[0], found[0]):.1e}",
                 str(sum(a != b for a, b in zip(first[1], found[1], strict=True)))]
            )  # fmt: skip
            print(rows[-1], file=sys.stderr)
    return rows


def train(out: Path, domains: tuple[Path, Path], processes: int, given: argparse.Namespace) -> RunFolder:
    own = {
        **SETTINGS,
        "train.max_steps": given.steps, "train.batch_size": given.batch, "train.evaluate_every": given.steps,
        "train.start": "probe", "train.baseline": False, "selection.game": False, "selection.ship": "adapted",
        "train.log_every": 5,
    }  # fmt: skip
    command = [sys.executable, "-m", "pmtrans", "train", "--seed", str(given.seed), "--weights", str(weights_path())]
    command += ["--source", str(domains[0]), "--target", str(domains[1]), "--out", str(out)]
    command += [f"{name}={value}" for name, value in own.items()]
    command += ["--processes", str(processes)] if processes > 1 else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return RunFolder(out)


def classes_of(run: RunFolder, target: Path) -> list[str | None]:
    images = sorted(str(path) for path in target.rglob("*.png"))
    return [prediction.label for prediction in load(run.path, device="cpu").predict(images)]


def largest(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    return max(float((one[name].double() - other[name].double()).abs().max()) for name in one)


if __name__ == "__main__":
    main()
