"""How the cost of the alignment grows: pairs B, patches N, width D, classes K, target images n_t."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from pmtrans.bench.alignment import ALIGNMENTS, Shape
from pmtrans.bench.complexity import exponent, forward_backward

# Tensors between 1 and 30 MB: larger than the caches, smaller than what the C library maps anew for each tensor.
BASE = Shape(patches=196, width=384, classes=65, pairs=8)
SWEEPS: dict[str, Sequence[int]] = {
    "pairs": (16, 32, 64),
    "patches": (400, 784, 1600),
    "width": (384, 768, 1536),
    "classes": (65, 345, 1000),
}
# What each part is expected to grow with: mixing B N D; losses B^2 D + B K; k-means n_t D K, once an epoch.
PARTS: dict[str, dict[str, str]] = {
    "mixing": {"pairs": "B", "patches": "N", "width": "D", "classes": "K"},
    "losses": {"pairs": "B", "patches": "N", "width": "D", "classes": "K"},
    "pseudo labels": {"pairs": "n_t", "width": "D", "classes": "K"},
}
TARGET_IMAGES = (4096, 8192, 16384)


def growth_table(repeats: int, clock: Callable[[], float]) -> str:
    """Markdown: fitted exponents of time, and ms at the largest size; - where a size does not enter."""
    lines = ["| part | " + " | ".join(("B", "N", "D", "K", "n_t")) + " | at the largest |", "| :-- |" + " --: |" * 6]
    for part, variables in PARTS.items():
        cells = dict.fromkeys(("B", "N", "D", "K", "n_t"), "-")
        largest = 0.0
        for variable, letter in variables.items():
            of_images = part == "pseudo labels"
            sizes = TARGET_IMAGES if letter == "n_t" else SWEEPS[variable]
            base = replace(BASE, pairs=TARGET_IMAGES[0]) if of_images else BASE
            times = [fastest(part, replace(base, **{variable: size}), repeats, clock) for size in sizes]
            cells[letter] = f"{exponent(sizes, times):.2f}"
            largest = max(largest, times[-1])
        lines.append(f"| {part} | {' | '.join(cells.values())} | {1000 * largest:.1f} ms |")
    return "\n".join(lines) + "\n"


def fastest(part: str, shape: Shape, repeats: int, clock: Callable[[], float]) -> float:
    """Forward and backward of one part: the fastest of several, as on a busy machine only that repeats."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    alignment = ALIGNMENTS[part](shape, device)
    times = []
    for _ in range(repeats + 1):
        begin = clock()
        forward_backward(alignment)
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(clock() - begin)
    return min(times[1:])
