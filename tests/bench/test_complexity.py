"""The cost of aligning: what must be kept is counted exactly, so exponents can be checked against arithmetic."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pmtrans.bench.alignment import Alignment, Shape, cross_attention, mixing
from pmtrans.bench.complexity import cost, exponent, kept_bytes, measure, table, write_complexity

SMALL = Shape(patches=16, width=64, classes=5, pairs=2)


def test_a_power_law_is_found() -> None:
    sizes = [3, 10, 50, 200]
    assert exponent(sizes, [0.5 * size**1.7 for size in sizes]) == pytest.approx(1.7)


def test_kept_bytes_are_each_storage_once_without_the_inputs() -> None:
    x = torch.ones(10, requires_grad=True)
    # exp keeps its result, square keeps its argument (the same storage), and the output is a third tensor
    assert kept_bytes(Alignment((x,), lambda: (x.exp().square(),))) == 2 * 10 * 4


def test_cross_attention_keeps_the_map_of_all_pairs_of_patches() -> None:
    """One head: scaled queries and output N x D, and the softmax N x N, for each of B images, in float32."""
    b, n, d = SMALL.pairs, SMALL.patches, SMALL.width
    assert kept_bytes(cross_attention(SMALL)) == 4 * b * (2 * n * d + n * n)


def test_mixing_keeps_what_is_linear_in_the_patches() -> None:
    sizes = [16, 64, 256, 1024]
    kept = [kept_bytes(mixing(Shape(size, 32, 5, 2))) for size in sizes]
    assert exponent(sizes, kept) == pytest.approx(1.0, abs=0.02)
    attention = [kept_bytes(cross_attention(Shape(size, 32, 5, 2))) for size in sizes]
    assert exponent(sizes, attention) > 1.5


def test_a_table_and_a_plot_are_written(tmp_path: Path) -> None:
    measured = measure(SMALL, {"patches": (4, 16), "classes": (3, 9)}, repeats=1)
    paths = write_complexity(tmp_path, measured)
    assert all(path.stat().st_size > 0 for path in paths)
    assert table(measured).count("\n") == 2 + 6
    lines = (tmp_path / "complexity.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * 2 * 6
    assert cost("losses", SMALL, repeats=1).seconds > 0
