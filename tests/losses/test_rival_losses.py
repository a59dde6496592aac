from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from pmtrans.losses.multi_sample_contrastive import affinity, multi_sample_contrastive_loss, neighbour_labels
from pmtrans.losses.nuclear_norm import batch_nuclear_norm_loss
from pmtrans.losses.prototype_transport import prototype_posterior, prototype_transport_loss
from pmtrans.losses.semantic_augmentation import augmented_logits


def softmax(values: np.ndarray, axis: int = -1) -> np.ndarray:
    powers = np.exp(values - values.max(axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis, keepdims=True))


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
def test_nuclear_norm_is_the_sum_of_singular_values_over_the_smaller_side(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    logits = 3 * torch.randn(shape)
    expected = -np.linalg.norm(softmax(logits.double().numpy()), "nuc") / min(shape)
    assert float(batch_nuclear_norm_loss(logits)) == pytest.approx(expected, rel=1e-5)


def test_nuclear_norm_prefers_certain_and_diverse_predictions_and_survives_equal_ones() -> None:
    certain = 20 * torch.eye(4)
    collapsed = certain[[0, 0, 0, 0]].clone().requires_grad_()
    assert float(batch_nuclear_norm_loss(certain)) == pytest.approx(-1, abs=1e-4)
    loss = batch_nuclear_norm_loss(collapsed)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(-0.5, abs=1e-4)  # one singular value of sqrt(4)
    assert collapsed.grad is not None
    assert collapsed.grad.isfinite().all()


def test_prototype_transport_in_plain_loops() -> None:
    random = np.random.default_rng(0)
    mu, f, prior = random.normal(size=(3, 4)), random.normal(size=(5, 4)), np.array([0.5, 0.3, 0.2])
    there = back = 0.0
    for i in range(5):
        weights = [prior[k] * math.exp(mu[k] @ f[i]) for k in range(3)]
        for k in range(3):
            cost = 1 - mu[k] @ f[i] / np.linalg.norm(mu[k]) / np.linalg.norm(f[i])
            there += cost * weights[k] / sum(weights) / 5
            back += prior[k] * cost * math.exp(mu[k] @ f[i]) / sum(math.exp(mu[k] @ f[j]) for j in range(5))
    got = prototype_transport_loss(*(torch.from_numpy(value) for value in (mu, f, prior)))
    assert float(got) == pytest.approx((there + back) / 2)
    posterior = prototype_posterior(*(torch.from_numpy(value) for value in (mu, f, prior)))
    assert posterior.sum(1).tolist() == pytest.approx([1] * 5)


def test_augmented_logits_equal_the_formula_with_full_covariances() -> None:
    random = np.random.default_rng(0)
    weight, means_s = random.normal(size=(4, 6)), random.normal(size=(4, 6))
    memory, memory_labels = random.normal(size=(20, 6)), np.array([0, 1, 2, -1] * 5)  # nothing of class 3 yet
    logits, labels, strength = random.normal(size=(5, 4)), np.array([0, 1, 2, 3, 0]), 0.2
    expected = logits.copy()
    for i, y in enumerate(labels):
        if y == 3:
            continue
        mine = memory[memory_labels == y]
        covariance = np.cov(mine, rowvar=False, bias=True)
        for c in range(4):
            step = weight[c] - weight[y]
            expected[i, c] += strength * step @ (mine.mean(0) - means_s[y]) + 0.5 * strength * step @ covariance @ step
    arrays = (logits, labels, weight, means_s, memory, memory_labels)
    z, y, w, means, bank, bank_labels = (torch.from_numpy(array) for array in arrays)
    got = augmented_logits(z, y, w, means, bank, bank_labels, strength)
    assert np.allclose(got.numpy(), expected)


def test_the_closed_form_bounds_what_sampling_gives() -> None:
    """E CE over drawn features <= CE of the shifted logits, and near it for a small strength (Jensen)."""
    torch.manual_seed(0)
    weight, feature = torch.randn(3, 4), torch.randn(1, 4)
    memory, mean_s, strength = torch.randn(50, 4) + 1, torch.zeros(3, 4), 0.1
    mine = memory.mean(0) - mean_s[0], torch.cov(memory.T, correction=0)
    draws = torch.distributions.MultivariateNormal(feature[0] + strength * mine[0], strength * mine[1]).sample((40000,))
    sampled = -(draws @ weight.T).log_softmax(1)[:, 0].mean()
    labels = torch.zeros(50, dtype=torch.long)
    bound = augmented_logits(feature @ weight.T, labels[:1], weight, mean_s, memory, labels, strength)
    closed = -bound.log_softmax(1)[0, 0]
    assert sampled <= closed + 0.01
    assert closed == pytest.approx(float(sampled), rel=0.35)


def test_neighbours_vote_and_the_ratio_says_how_clear_it_was() -> None:
    source = torch.tensor([[0.0], [1.0], [10.0], [11.0], [12.0]])
    labels = torch.tensor([0, 0, 1, 1, 1])
    target = torch.tensor([[0.5], [11.0], [5.4]])
    phi = affinity(source, target)
    assert float(phi[1, 2]) == pytest.approx(1 / 5.4)
    voted, ratio = neighbour_labels(phi, labels, classes=2, neighbours=2)
    assert voted.tolist() == [0, 1, 0]  # a tie of 1.0 (4.4 away) and 10.0 (4.6 away): the nearer wins
    like, unlike = 1 / 5.4 + 1 / 6.4, 1 / 5.6 + 1 / 6.6
    assert float(ratio[2]) == pytest.approx(like / unlike)
    assert float(ratio[0]) > float(ratio[2])


def test_multi_sample_contrastive_loss_in_plain_loops() -> None:
    torch.manual_seed(0)
    source, target = torch.randn(6, 3, requires_grad=True), torch.randn(5, 3)
    labels_s, labels_t = [0, 0, 1, 1, 2, 3], [0, 1, 1, 2, 3]
    kept = [True, True, True, False, True]  # class 2 has no kept target: its source says nothing
    losses = []
    for i in range(6):
        scores = {j: 1 / (1 + math.dist(source[i].tolist(), target[j].tolist())) for j in range(5) if kept[j]}
        same = [j for j in scores if labels_t[j] == labels_s[i]]
        if same and len(same) < len(scores):
            total = sum(math.exp(score) for score in scores.values())
            losses.append(-math.log(sum(math.exp(scores[j]) for j in same) / total))
    assert len(losses) == 5
    phi = affinity(source, target)
    got = multi_sample_contrastive_loss(phi, torch.tensor(labels_s), torch.tensor(labels_t), torch.tensor(kept))
    assert float(got.detach()) == pytest.approx(sum(losses) / 5, rel=1e-5)
    got.backward()
    assert source.grad is not None
    assert source.grad.isfinite().all()


def test_rival_losses_are_float32_under_autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = torch.randn(4, 8) @ torch.randn(8, 3)
        assert logits.dtype == torch.bfloat16
        assert batch_nuclear_norm_loss(logits).dtype == torch.float32
        features = torch.randn(4, 6).bfloat16()
        assert prototype_transport_loss(torch.randn(3, 6), features, torch.full((3,), 1 / 3)).dtype == torch.float32
        assert affinity(features, features).dtype == torch.float32
