"""Pseudo labels at scale: peak memory and seconds of k-means, compared with the feature pass before it.

python benchmarks/pseudo_labels.py --images 600000 --width 1024 --classes 345

Features and logits are generated, and counted in the peak (of a process of its own: resident memory never forgets its
peak). The feature pass is timed on a few images and counted per image: forward of ``--backbone`` in evaluation mode.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import torch

from pmtrans.pseudo_labels import kmeans_pseudo_labels, spherical_kmeans

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def labelling(given: argparse.Namespace) -> dict[str, float]:
    """Features around a centre per class, logits that are right for most; what k-means needs on top of them."""
    torch.manual_seed(0)
    centres_KF = torch.randn(given.classes, given.width, device=DEVICE)
    features_MF = torch.randn(given.images, given.width, device=DEVICE)
    logits_MK = torch.randn(given.images, given.classes, device=DEVICE)
    truth_M = torch.arange(given.images, device=DEVICE) % given.classes
    for start in range(0, given.images, 4096):  # in pieces: the benchmark must not be what needs the memory
        piece = slice(start, start + 4096)
        features_MF[piece] += 0.3 * centres_KF[truth_M[piece]]
    logits_MK.scatter_add_(1, truth_M[:, None], torch.full((given.images, 1), 2.0, device=DEVICE))
    begin, used = time.perf_counter(), time.process_time()
    if given.algorithm == "kmeans":
        labels_M = kmeans_pseudo_labels(features_MF, logits_MK=logits_MK)
    else:
        labels_M, _ = spherical_kmeans(features_MF, centres_KF + 0.5 * torch.randn_like(centres_KF))
    right = float((labels_M == truth_M).float().mean())  # waits for the device
    return {
        "seconds": time.perf_counter() - begin,
        "processor_seconds": time.process_time() - used,
        "right": right,
        "inputs_gb": 4 * given.images * (given.width + given.classes) / 1e9,
        "peak_gb": peak_bytes() / 1e9,
    }


def peak_bytes() -> int:
    if DEVICE.type == "cuda":
        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def forward_seconds(given: argparse.Namespace) -> tuple[float, float]:
    """Per image, by the clock and of the processor: the least of a few batches, as k-means is compared with it."""
    from pmtrans.backbones.create import create_backbone  # not in the process whose memory is measured
    from pmtrans.model import Model

    model = Model(create_backbone(given.backbone, "none", given.image_size), given.classes).to(DEVICE).eval()
    images = torch.randn(given.batch, 3, given.image_size, given.image_size, device=DEVICE)
    times = []
    with torch.inference_mode():
        for _ in range(given.repeats + 1):
            begin, used = time.perf_counter(), time.process_time()
            model.features_and_logits(images)[1].sum().item()
            times.append((time.perf_counter() - begin, time.process_time() - used))
    return min(t for t, _ in times[1:]) / given.batch, min(u for _, u in times[1:]) / given.batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=600_000)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--classes", type=int, default=345)
    parser.add_argument("--algorithm", choices=("kmeans", "spherical"), default="kmeans")
    parser.add_argument("--backbone", default="deit_tiny_patch16_224", help="whose forward pass is compared with")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--labelling-only", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.labelling_only:
        print(json.dumps(labelling(given)))
        return
    command = [sys.executable, __file__, "--labelling-only", *sys.argv[1:]]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    clock, processor = forward_seconds(given)
    result |= {
        "forward_seconds_per_image": clock,
        "share_of_feature_pass": result["seconds"] / (clock * given.images),
        "share_of_feature_pass_processor": result["processor_seconds"] / (processor * given.images),
    }
    print(json.dumps({**vars(given), **result}))


if __name__ == "__main__":
    main()
