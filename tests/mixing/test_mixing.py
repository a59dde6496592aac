from __future__ import annotations

import pytest
import torch

from pmtrans.mixing import MIXINGS, LearnableBeta, label_weights, uniform_scores
from pmtrans.mixing.mixing import Mixing


def mixing(kind: str, grid: tuple[int, int] = (3, 4)) -> Mixing:
    return MIXINGS[kind](LearnableBeta((1.0, 1.0), 0.3, 5.0), grid)


@pytest.mark.parametrize("kind", ["patchmix", "mixup", "cutmix"])
def test_tokens_are_mixed_patch_by_patch_with_the_source_weight(kind: str) -> None:
    torch.manual_seed(0)
    source, target = torch.randn(2, 12, 5), torch.randn(2, 12, 5)
    mixed = mixing(kind)(source, target)
    for pair in range(2):
        for patch in range(12):
            weight = float(mixed.ratio_BN[pair, patch])
            for column in range(5):
                expected = weight * float(source[pair, patch, column]) + (1 - weight) * float(
                    target[pair, patch, column]
                )
                assert float(mixed.tokens_BND[pair, patch, column]) == pytest.approx(expected, abs=1e-5)


def test_patchmix_draws_one_ratio_per_patch_and_pair() -> None:
    torch.manual_seed(0)
    assert mixing("patchmix").ratios(5).unique().numel() == 5 * 12


def test_mixup_draws_one_ratio_per_pair() -> None:
    torch.manual_seed(0)
    ratios = mixing("mixup").ratios(5)
    assert all(row.unique().numel() == 1 for row in ratios)
    assert ratios[:, 0].unique().numel() == 5


def test_cutmix_pastes_one_box_whose_mean_area_follows_the_beta() -> None:
    torch.manual_seed(0)
    ratios = mixing("cutmix", (14, 14)).ratios(400).unflatten(1, (14, 14))
    assert set(ratios.unique().tolist()) == {0.0, 1.0}
    for picture in ratios[:50]:
        rows, columns = (picture == 0).any(1), (picture == 0).any(0)
        assert int((picture == 0).sum()) == int(rows.sum()) * int(columns.sum())  # a full rectangle
    assert 0.6 < float(ratios.mean()) < 0.8  # Beta(1,1) asks for 0.5; boxes cut off at the border are smaller


@pytest.mark.parametrize("kind", ["patchmix", "mixup"])
def test_gradients_reach_both_concentrations(kind: str) -> None:
    module = mixing(kind)
    torch.manual_seed(0)
    module(torch.randn(4, 12, 5), torch.randn(4, 12, 5)).tokens_BND.square().sum().backward()
    gradient = module.beta.raw.grad
    assert gradient is not None
    assert (gradient != 0).all()


def test_label_weights_follow_the_formula_in_plain_loops() -> None:
    torch.manual_seed(0)
    ratio = torch.rand(3, 7)
    a_s, a_t = torch.rand(3, 7).softmax(1), torch.rand(3, 7).softmax(1)
    w_s, w_t = label_weights(ratio, a_s, a_t)
    for pair in range(3):
        top = sum(float(ratio[pair, k]) * float(a_s[pair, k]) for k in range(7))
        rest = sum((1 - float(ratio[pair, k])) * float(a_t[pair, k]) for k in range(7))
        assert float(w_s[pair]) == pytest.approx(top / (top + rest), abs=1e-6)
        assert float(w_t[pair]) == pytest.approx(rest / (top + rest), abs=1e-6)


def test_uniform_scores_give_the_mean_ratio_of_definition_1() -> None:
    ratio = torch.rand(3, 7)
    w_s, _ = label_weights(ratio, uniform_scores(ratio), uniform_scores(ratio))
    assert w_s.tolist() == pytest.approx(ratio.mean(1).tolist(), abs=1e-6)
