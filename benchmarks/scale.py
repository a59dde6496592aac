"""Millions of images: what listing, reading, labelling and judging them take, in time and memory.

    python benchmarks/scale.py                              a million images in shards, ten million features
    python benchmarks/scale.py --only features --width 64   one of the two
    python benchmarks/scale.py --images 20000 --features 200000     a look

Everything is generated in ``--folder`` and removed at the end; ten million features of width 192 take 8 GB there. Each
part runs in a process of its own and prints one JSON object. Memory is sampled from the system while it runs:
``anonymous`` is what the process must have, ``resident`` counts pages of files too, which the system drops when others
need the memory.

``images``    tiny PNGs in tar files: the index made and reused, a pass of the loader over ``--pass-images`` of them.
              ``pass_seconds_all_extrapolated`` is that time times images / pass_images: worked out, not measured.
``features``  classes around centres, with logits of a model that is often right: k-means labels of all of them, then
              evidence, all validators and the estimate, as an evaluation of a run computes them. ``sample_error`` is
              the difference between a score on the sample and the same score on all images.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from shards import measure
from torch import Tensor

from pmtrans.evaluation.passes import Pass
from pmtrans.large_rows import empty_rows
from pmtrans.pseudo_labels import kmeans_pseudo_labels
from pmtrans.selection.estimate import estimate_accuracy
from pmtrans.selection.evidence import Evidence, judged_places
from pmtrans.selection.judge import evidence_of
from pmtrans.selection.validators import VALIDATORS, score_all

CPU = torch.device("cpu")
ROWS = 65_536  # generated at a time
WITH_ALL = ("entropy", "information_maximisation", "bnm", "softmax_correlation")  # cheap enough for all images
Result = TypeVar("Result")


@dataclass(frozen=True)
class Evaluated:
    """What a judge reads of an evaluation."""

    step: int
    target: Pass
    holdout: Pass
    source_sample: Pass
    ground: None = None


def images(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Listing and one pass of the loader."""
    found: dict[str, Any] = dict(measure(folder, given.images, 10_000, 8, given.workers, given.pass_images))
    if found["pass_images"] < found["images"]:
        factor = found["images"] / found["pass_images"]
        found["pass_seconds_all_extrapolated"] = found["pass_seconds"] * factor
    return found


def features(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Pseudo labels of all images, and one evaluation of them."""
    found: dict[str, Any] = {"features": given.features, "width": given.width, "classes": given.classes}
    clock = Clock(found)
    random = torch.Generator().manual_seed(0)
    centres_KF = torch.randn(given.classes, given.width, generator=random)
    weights_FK = 4 * centres_KF.T / given.width

    def domain(rows: int, shift: float, where: Path | None) -> tuple[Pass, Tensor]:
        features_MF = empty_rows(rows, given.width, CPU, where, on_disk=1)
        logits_MK = empty_rows(rows, given.classes, CPU, where, on_disk=1)
        labels_M = torch.randint(given.classes, (rows,), generator=random)
        moved_F = shift * torch.randn(given.width, generator=random)
        for start in range(0, rows, ROWS):
            piece = slice(start, min(start + ROWS, rows))
            noise = torch.randn(piece.stop - start, given.width, generator=random)
            features_MF[piece] = centres_KF[labels_M[piece]] + 3 * noise + moved_F
            logits_MK[piece] = features_MF[piece] @ weights_FK
        return Pass(features_MF, logits_MK), labels_M

    target, truth_M = clock("generate_seconds", lambda: domain(given.features, 0.5, folder))
    (holdout, labels_N), (train, _) = domain(2_000, 0.0, None), domain(2_000, 0.0, None)
    found["gigabytes_on_disk"] = 4 * given.features * (given.width + given.classes) / 1e9

    labels_M = clock("kmeans_seconds", lambda: kmeans_pseudo_labels(target.features_MF, logits_MK=target.logits_MK))
    right_M = labels_M == truth_M
    found["kmeans_right"] = float(right_M.double().mean())
    evaluated = Evaluated(0, target, holdout, train)
    evidence = clock("evidence_seconds", lambda: evidence_of(evaluated, labels_N.tolist()))
    found["sampled_images"] = len(evidence.target_logits_MK)
    before = _before(evidence, weights_FK, random)
    clock("arbitration_and_estimate_seconds", lambda: estimate_accuracy(evidence, before))
    scores = clock("all_validators_seconds", lambda: score_all(evidence, before))
    whole = replace(evidence, target_features_MD=target.features_MF, target_logits_MK=target.logits_MK)
    on_all = clock("four_validators_of_all_images_seconds", lambda: _scores(whole))
    found["sample_error"] = {name: scores[name] - value for name, value in on_all.items()}
    sampled = float(right_M[judged_places(len(right_M))].double().mean())
    found["sample_error"]["share_of_right_labels"] = sampled - found["kmeans_right"]
    return found


def _before(evidence: Evidence, weights_FK: Tensor, random: torch.Generator) -> Evidence:
    """A worse model of the same images: an adaptation has something to change."""
    worse_FK = weights_FK + 0.5 * weights_FK.std() * torch.randn(weights_FK.shape, generator=random)
    return replace(
        evidence,
        source_logits_NK=evidence.source_features_ND @ worse_FK,
        target_logits_MK=evidence.target_features_MD @ worse_FK,
    )


def _scores(evidence: Evidence) -> dict[str, float]:
    return {name: VALIDATORS[name].function(evidence) for name in WITH_ALL}


@dataclass(frozen=True)
class Clock:
    """Calls something and notes its seconds and the highest memory meanwhile."""

    found: dict[str, Any]

    def __call__(self, name: str, function: Callable[[], Result]) -> Result:
        with peak_memory() as peak:
            start, used = time.perf_counter(), time.process_time()
            result = function()
            self.found[name] = time.perf_counter() - start
            self.found[name.replace("_seconds", "_processor_seconds")] = time.process_time() - used
        self.found[name.replace("_seconds", "_anonymous_megabytes")] = peak["RssAnon"]
        print(f"{name}: {self.found[name]:.1f}, {peak['RssAnon']:.0f} MB", file=sys.stderr, flush=True)
        return result


@contextmanager
def peak_memory() -> Iterator[dict[str, float]]:
    """Highest ``RssAnon`` and ``VmRSS`` of this process in MB, twenty looks a second (Linux)."""
    peak = {"RssAnon": 0.0, "VmRSS": 0.0}
    done = threading.Event()

    def look() -> None:
        status = Path("/proc/self/status").read_text()
        for name in peak:
            line = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
            peak[name] = max(peak[name], int(line[1]) / 1024 if line else 0.0)

    def watch() -> None:
        while not done.wait(0.05):
            look()

    look()
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        look()
        done.set()
        thread.join()


PARTS = {"images": images, "features": features}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--pass-images", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--features", type=int, default=10_000_000)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--classes", type=int, default=12)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", choices=PARTS)
    given = parser.parse_args()
    if given.only is None:
        for name in PARTS:
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--only", name], check=True)
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder, peak_memory() as peak:
        found = PARTS[given.only](given, Path(folder))
    found |= {"peak_anonymous_megabytes": peak["RssAnon"], "peak_resident_megabytes": peak["VmRSS"]}
    print(json.dumps({given.only: _rounded(found)}), flush=True)


def _rounded(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _rounded(value) for name, value in found.items()}
    return round(found, 4) if isinstance(found, float) else found


if __name__ == "__main__":
    main()
