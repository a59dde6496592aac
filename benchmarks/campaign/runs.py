"""Small runs, and whether two of them are equal: weights, metrics, predictions and summaries of every stage."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from campaign.sessions import in_a_fork
from PIL import Image

from pmtrans.files import is_leftover
from pmtrans.run.folder import RunFolder

SETTINGS = [
    "backbone.options={depth: 2, embed_dim: 32, num_heads: 2}",
    "data.image_size=32",
    "train.batch_size=4",
    "train.epochs=99",
    "train.evaluate_every=3",
    "train.log_every=1",
]
CASES: dict[str, list[str]] = {
    "one process": ["method.preset=paper", "train.accumulate=2", "data.workers=0"],
    "the defaults": ["method.preset=best", "train.start=average", "data.workers=0"],
    "two workers": ["method.preset=reference", "train.accumulate=2", "data.workers=2"],
    "two processes": ["method.preset=paper", "data.workers=0", "--processes", "2"],
    "two processes, sharded, one worker each": [
        "method.preset=paper",
        "data.workers=1",
        "train.sharding=full",
        "--processes",
        "2",
    ],
}


def write_domains(folder: Path) -> None:
    """Two small domains of noise: nothing is learned, everything is compared."""
    noise = np.random.default_rng(0)
    for domain, images in (("source", 11), ("target", 8)):
        for name in ("ant", "bee", "cat"):
            (folder / domain / name).mkdir(parents=True)
            for number in range(images):
                pixels = noise.integers(0, 256, (36, 36, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / domain / name / f"{number:02d}.png")


def train_command(data: Path, out: Path, case: str, steps: int, extra: tuple[str, ...] = ()) -> list[str]:
    """``pmtrans train`` with a baseline; both stages take ``steps``."""
    domains = ["--source", str(data / "source"), "--target", str(data / "target")]
    model = ["--backbone", "vit_tiny_patch16_224", "--weights", "none", "--out", str(out)]
    return ["train", *domains, *model, *SETTINGS, f"train.max_steps={steps}", *CASES[case], *extra]


def temporaries(out: Path) -> set[str]:
    """What is being written right now under a name that is not its own yet."""
    found = set()
    for stage in RunFolder(out).stages:
        for folder in (stage.path, stage.checkpoints, stage.candidates):
            with contextlib.suppress(OSError):
                found |= {f"{folder}/{entry.name}" for entry in os.scandir(folder) if is_leftover(entry.name)}
    return found


def milestones(out: Path) -> set[str]:
    """Grows when a stage ends, and when the conclusion has written one of its parts."""
    run = RunFolder(out)
    ends = [path for stage in run.stages for path in (stage.finished, stage.model, stage.evidence)]
    return {str(path) for path in (*ends, run.summary) if path.exists()}


def progress(out: Path) -> list[int]:
    """Grows with every step."""
    logs = [stage.metrics for stage in RunFolder(out).stages]
    return [path.stat().st_size if path.exists() else -1 for path in logs]


def differences(one: Path, other: Path, data: Path) -> list[str]:
    """What differs between two finished runs, and what the second has left behind."""
    return in_a_fork(lambda: _differences(one, other, data))


def _differences(one: Path, other: Path, data: Path) -> list[str]:
    found = []
    for stages in zip(RunFolder(one).stages, RunFolder(other).stages, strict=True):
        name = stages[0].path.relative_to(one)
        title = "the run" if name == Path() else str(name)
        if stages[0].path.is_dir() != stages[1].path.is_dir():
            found.append(f"{title}: a stage is missing")
        elif stages[0].path.is_dir():
            weights = [stage.model / "model.safetensors" for stage in stages]
            if len({file.read_bytes() for file in weights}) > 1:
                found.append(f"{title}: weights differ")
            if _metrics(stages[0]) != _metrics(stages[1]):
                found.append(f"{title}: metrics differ")
    if temporaries(other):
        found.append("temporary names were left behind")
    if _predictions(one, data) != _predictions(other, data):
        found.append("predictions differ")
    summaries = [json.loads(RunFolder(run).summary.read_text()) for run in (one, other)]
    for summary in summaries:
        summary.pop("seconds")
    if summaries[0] != summaries[1]:
        found.append("summaries differ")
    return found


def _metrics(stage: RunFolder) -> list[dict[str, Any]]:
    from pmtrans.run.metrics import TIMES

    if not stage.metrics.exists():
        return []
    lines = [json.loads(line) for line in stage.metrics.read_text().splitlines()]  # every line must be complete
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]


def _predictions(run: Path, data: Path) -> list[tuple[object, ...]]:
    from pmtrans.inference.predictor import load

    paths = sorted(str(path) for path in (data / "target").rglob("*.png"))
    return [(p.path, p.label, p.probability, p.probabilities) for p in load(run, device="cpu").predict(paths)]
