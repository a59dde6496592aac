"""Time and memory of the alignment against patches, width, classes and batch, with fitted exponents.

Time is the fastest forward and backward of several, as on a busy machine only that repeats. Memory is what must be
kept until the backward pass beyond the inputs, outputs included: counted, not sampled, so it is exact on any device.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pmtrans.bench.alignment import ALIGNMENTS, Alignment, Shape
from pmtrans.machine import choose_device, wait_for

SWEEPS: dict[str, tuple[int, ...]] = {
    "patches": (49, 100, 196, 400, 576),
    "width": (192, 384, 768, 1536),
    "classes": (12, 31, 65, 345),
    "pairs": (4, 8, 16, 32),
}
LETTERS = {"patches": "N", "width": "D", "classes": "K", "pairs": "B"}


@dataclass(frozen=True)
class Cost:
    """Time and memory of one alignment at one shape."""

    shape: Shape
    seconds: float
    bytes: int


Measurements = dict[str, dict[str, list[Cost]]]  # variable -> alignment -> costs along the sweep


def measure(base: Shape | None = None, sweeps: Mapping[str, Sequence[int]] = SWEEPS, repeats: int = 5) -> Measurements:
    """Every alignment along every sweep, the other sizes held at ``base``."""
    base = base or Shape()
    return {
        variable: {
            name: [cost(name, replace(base, **{variable: size}), repeats) for size in sizes] for name in ALIGNMENTS
        }
        for variable, sizes in sweeps.items()
    }


def cost(name: str, shape: Shape, repeats: int = 5, device: str | None = None) -> Cost:
    """One alignment at one shape."""
    place = choose_device(device)
    torch.manual_seed(0)
    alignment = ALIGNMENTS[name](shape, str(place))
    kept = kept_bytes(alignment)
    times = []
    for _ in range(repeats):
        wait_for(place)
        begin = time.perf_counter()
        forward_backward(alignment)
        wait_for(place)
        times.append(time.perf_counter() - begin)
    return Cost(shape, min(times), kept)


def kept_bytes(alignment: Alignment) -> int:
    """Bytes of distinct storages that autograd keeps, and of the outputs, without the inputs."""
    storages: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        outputs = alignment.run()  # alive until all is counted: no address is used twice
    for output in outputs:
        note(output)
    given = {tensor.untyped_storage().data_ptr() for tensor in alignment.inputs}
    return sum(size for address, size in storages.items() if address not in given)


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """p of the power law ``value = c * size ** p`` that fits best (least squares of logarithms)."""
    slope, _ = np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-12)), 1)
    return float(slope)


def table(measured: Measurements) -> str:
    """Markdown: exponents of time and memory for each variable, and the cost at the largest size of each sweep."""
    lines = ["| part | " + " | ".join(f"{LETTERS[v]}: time, memory" for v in measured) + " | at the largest N |"]
    lines.append("| :-- |" + " --: |" * (len(measured) + 1))
    for name in ALIGNMENTS:
        cells = []
        for variable, costs in measured.items():
            sizes = [getattr(one.shape, variable) for one in costs[name]]
            grows = exponent(sizes, [one.seconds for one in costs[name]])
            kept = exponent(sizes, [one.bytes for one in costs[name]])
            cells.append(f"{grows:.2f}, {kept:.2f}")
        last = measured["patches" if "patches" in measured else next(iter(measured))][name][-1]
        lines.append(f"| {name} | {' | '.join(cells)} | {1000 * last.seconds:.1f} ms, {last.bytes / 2**20:.1f} MiB |")
    return "\n".join(lines) + "\n"


def csv(measured: Measurements) -> str:
    """Every measurement, one a line."""
    lines = ["part,variable,patches,width,classes,pairs,layers,seconds,bytes"]
    for variable, parts in measured.items():
        for name, costs in parts.items():
            for one in costs:
                s = one.shape
                shape = f"{s.patches},{s.width},{s.classes},{s.pairs},{s.layers}"
                lines.append(f'"{name}",{variable},{shape},{one.seconds:.6g},{one.bytes}')
    return "\n".join(lines) + "\n"


def write_complexity(out: Path, measured: Measurements) -> list[Path]:
    """``complexity.md``, ``.csv``, ``.png`` and ``.svg``."""
    from matplotlib.figure import Figure

    from pmtrans.files import write_text
    from pmtrans.report.run_figures import save_figure

    write_text(out / "complexity.md", table(measured))
    write_text(out / "complexity.csv", csv(measured))
    figure = Figure(figsize=(3.2 * len(measured), 5.6), layout="constrained")
    axes = figure.subplots(2, len(measured), squeeze=False, sharey="row")
    for column, (variable, parts) in enumerate(measured.items()):
        for name, costs in parts.items():
            sizes = [getattr(one.shape, variable) for one in costs]
            axes[0][column].loglog(sizes, [1000 * one.seconds for one in costs], marker=".", label=name)
            axes[1][column].loglog(sizes, [max(one.bytes, 1) / 2**20 for one in costs], marker=".", label=name)
            for cell in (axes[0][column], axes[1][column]):
                cell.set_xticks(sizes, map(str, sizes))
                cell.minorticks_off()
        axes[1][column].set_xlabel(f"{LETTERS[variable]} ({variable})")
    axes[0][0].set_ylabel("time (ms)")
    axes[1][0].set_ylabel("kept for backward (MiB)")
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=len(ALIGNMENTS), fontsize=8
    )
    return [out / "complexity.md", out / "complexity.csv", *save_figure(figure, out / "complexity")]


def forward_backward(alignment: Alignment) -> None:
    """One forward and backward pass; gradients of the inputs are cleared."""
    outputs = [output for output in alignment.run() if output.requires_grad]
    if outputs:
        torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
    for tensor in alignment.inputs:
        tensor.grad = None
