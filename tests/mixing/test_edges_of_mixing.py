"""Boxes and blocks patch by patch, the two ways of weighing, and what is drawn."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from pmtrans.mixing import MIXINGS, LearnableBeta, uniform_scores
from pmtrans.mixing.cutmix import random_box
from pmtrans.mixing.mixing import Mixing


def mixing(kind: str, grid: tuple[int, int], weighs: Literal["source", "target"] = "source") -> Mixing:
    return MIXINGS[kind](LearnableBeta((2.0, 1.0), 0.3, 5.0), grid, weighs)


def test_a_box_is_the_cells_within_half_its_side_of_a_random_centre() -> None:
    height, width, share = 5, 8, torch.linspace(0.0, 1.0, 60)
    torch.manual_seed(0)
    got = random_box(share, (height, width)).view(-1, height, width)
    torch.manual_seed(0)
    rows, columns = torch.rand(60) * height, torch.rand(60) * width
    for n in range(60):
        side = float(share[n]) ** 0.5
        for y in range(height):
            for x in range(width):
                inside = all(
                    round(float(centre) - side * cells / 2) <= place < round(float(centre) + side * cells / 2)
                    for centre, cells, place in ((rows[n], height, y), (columns[n], width, x))
                )
                assert bool(got[n, y, x]) == inside


@pytest.mark.parametrize("kind", ["patchmix", "mixup", "cutmix", "hierarchical", "tokenmix"])
def test_a_ratio_may_weigh_the_target(kind: str) -> None:
    source, target = torch.randn(3, 12, 5), torch.randn(3, 12, 5)
    torch.manual_seed(0)
    drawn = mixing(kind, (3, 4)).ratios(3)
    for weighs in ("source", "target"):
        torch.manual_seed(0)
        mixed = mixing(kind, (3, 4), weighs)(source, target)
        assert torch.equal(mixed.ratio_BN, drawn if weighs == "source" else 1 - drawn)
        for pair in range(3):
            for patch in range(12):
                weight = mixed.ratio_BN[pair, patch].item()
                expected = [
                    weight * s + (1 - weight) * t
                    for s, t in zip(source[pair, patch].tolist(), target[pair, patch].tolist(), strict=True)
                ]
                assert mixed.tokens_BND[pair, patch].tolist() == pytest.approx(expected, abs=1e-5)


def test_manifold_mixup_mixes_nothing_before_the_transformer() -> None:
    mixed = mixing("manifold_mixup", (3, 4))(torch.randn(3, 12, 5), torch.randn(3, 12, 5))
    assert mixed.tokens_BND.shape == (0, 12, 5)
    assert mixed.ratio_BN.shape == (3, 12)


def test_uniform_scores_are_a_distribution() -> None:
    assert uniform_scores(torch.rand(3, 8)).tolist() == [[1 / 8] * 8] * 3


def replaced(grid: tuple[int, int], patches: int, pairs: int = 300) -> torch.Tensor:
    """Masks of the replaced patches, so many in each pair."""
    torch.manual_seed(0)
    module = mixing("tokenmix", grid)
    module.beta.sample = lambda shape: torch.full(shape, 1 - patches / (grid[0] * grid[1]))  # type: ignore[method-assign]
    drawn = torch.cat([module.ratios(30) for _ in range(pairs // 30)])
    assert drawn.shape == (pairs, grid[0] * grid[1])
    assert (drawn == 0).sum(1).tolist() == [patches] * pairs
    return (drawn == 0).view(pairs, *grid)


@pytest.mark.parametrize(("grid", "side"), [((14, 14), 2), ((15, 15), 3), ((20, 24), 4), ((9, 14), 1)])
def test_tokenmix_replaces_whole_blocks_of_a_fifth_of_the_grid(grid: tuple[int, int], side: int) -> None:
    """As many patches as a block has form that square, unless it is cut off at the border."""
    squares = 0
    for mask in replaced(grid, side * side):
        rows, columns = mask.any(1).nonzero().flatten(), mask.any(0).nonzero().flatten()
        squares += int(rows[-1] - rows[0] == columns[-1] - columns[0] == side - 1)
    assert squares > 0.45 * 300


def test_tokenmix_on_a_small_grid_replaces_single_patches() -> None:
    """Two of 4 x 4 patches at random are neighbours in a row or column in 24 of 120 cases."""
    neighbours = 0
    for mask in replaced((4, 4), 2, 900):
        (y, x), (v, u) = mask.nonzero().tolist()
        neighbours += abs(y - v) + abs(x - u) == 1
    assert neighbours / 900 == pytest.approx(24 / 120, abs=0.05)


def test_the_range_of_a_beta_is_kept_without_a_gradient() -> None:
    beta = LearnableBeta((1.0, 1.0), floor=0.3, ceiling=5.0)
    beta.project()  # in place, on a parameter
    assert beta.raw.grad is None
    assert beta.concentrations().tolist() == pytest.approx([1.0, 1.0])
