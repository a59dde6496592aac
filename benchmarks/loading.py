"""The share of the step time spent waiting for the data loader.

python benchmarks/loading.py --source amazon --target webcam --weights deit_tiny_patch16_224.safetensors
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from pmtrans.progress import Reporter
from pmtrans.run.folder import RunFolder
from pmtrans.run.metrics import read_metrics
from pmtrans.settings import load_config
from pmtrans.training.train import train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--backbone", default="deit_tiny_patch16_224")
    parser.add_argument("--weights", default="none")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    settings = {
        "data.source": given.source, "data.target": given.target, "data.image_size": given.image_size,
        "data.workers": given.workers, "data.holdout": 0.0, "backbone.name": given.backbone,
        "backbone.weights": given.weights, "train.batch_size": given.batch, "train.max_steps": given.steps,
        "train.evaluate_every": 10**6, "train.log_every": 1, "train.baseline": False,
        "method.pseudo_labels": "neighbours",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder) / "run")
        train(load_config(None, (), settings), run.path, Reporter())
        lines = [line for line in read_metrics(run.metrics) if "event" not in line]
    steady = lines[3:]  # the first steps start the workers
    print(
        json.dumps(
            {
                "waiting_share": statistics.median(line["waiting_share"] for line in steady),
                "images_per_second": statistics.median(line["images_per_second"] for line in steady),
                **vars(given),
            }
        )
    )


if __name__ == "__main__":
    main()
