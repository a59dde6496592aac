from __future__ import annotations

import pytest
import torch

from pmtrans.mixing import LearnableBeta
from pmtrans.mixing.hierarchical import HierarchicalPatchMix, patch_concentrations
from pmtrans.mixing.patchmix import PatchMix

GRID = (8, 8)


def beta() -> LearnableBeta:
    return LearnableBeta((1.0, 1.0), 0.3, 5.0)


def test_pairs_differ_as_the_beta_says_where_independent_patches_average_out() -> None:
    torch.manual_seed(0)
    means = {mixing: mixing(beta(), GRID).ratios(2000).detach().mean(1) for mixing in (PatchMix, HierarchicalPatchMix)}
    uniform = (1 / 12) ** 0.5
    assert float(means[HierarchicalPatchMix].mean()) == pytest.approx(0.5, abs=0.02)
    assert float(means[HierarchicalPatchMix].std()) == pytest.approx(uniform, rel=0.1)
    assert float(means[PatchMix].std()) == pytest.approx(uniform / 8, rel=0.1)


def test_patches_vary_around_the_ratio_of_their_pair() -> None:
    b, g = patch_concentrations(torch.tensor([[0.0], [0.25], [1.0]]))
    assert (b / (b + g)).squeeze(1).tolist() == pytest.approx([0.02, 0.25, 0.98])
    assert (b + g).squeeze(1).tolist() == pytest.approx([2.0, 2.0, 2.0])


def test_gradients_reach_both_concentrations_and_point_the_right_way() -> None:
    torch.manual_seed(0)
    drawn = beta()
    HierarchicalPatchMix(drawn, GRID).ratios(4000).mean().backward()
    assert drawn.raw.grad is not None
    up, down = drawn.raw.grad.tolist()
    # mean = b / (b + g), so d mean / d b = 1/4 at (1, 1); d b / d raw = 1 - exp(-(b - floor)) = 0.503
    assert up == pytest.approx(0.25 * 0.503, rel=0.1)
    assert down == pytest.approx(-0.25 * 0.503, rel=0.1)
