"""Defaults, single members, empty classes, zeros and half precision: where a loss is easily wrong unnoticed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist, pdist
from scipy.special import entr, log_softmax, rel_entr, softmax
from torch import Tensor

from pmtrans.losses import Tradeoff, classification_loss, label_similarity, mixup_feature_loss, mixup_label_loss
from pmtrans.losses.bidirectional_matching import bidirectional_matching
from pmtrans.losses.category_confusion import category_confusion
from pmtrans.losses.class_balance import class_balance_loss
from pmtrans.losses.class_confusion import minimum_class_confusion
from pmtrans.losses.classifier_discrepancy import classifier_discrepancy
from pmtrans.losses.consistency import consistency_loss
from pmtrans.losses.contrastive_domain_discrepancy import contrastive_domain_discrepancy
from pmtrans.losses.distillation import distillation_loss
from pmtrans.losses.domain_adversarial import domain_adversarial_loss
from pmtrans.losses.domain_confusion import domain_confusion
from pmtrans.losses.domain_halves import domain_loss
from pmtrans.losses.entropy import entropy, entropy_of_mean
from pmtrans.losses.fixed_ratio_mixup import fixed_ratio_mixup
from pmtrans.losses.information_maximisation import information_maximisation_loss, weighted_information_loss
from pmtrans.losses.jensen_shannon import jensen_shannon, mean_over_pairs, pairwise_divergence
from pmtrans.losses.kernel_bures import conditional_bures_distance, conditional_kernel_bures_loss
from pmtrans.losses.kernels import gaussian_kernel, squared_distances
from pmtrans.losses.margin_disparity import margin_disparity
from pmtrans.losses.masked_consistency import masked_consistency_loss
from pmtrans.losses.maximum_mean_discrepancy import maximum_mean_discrepancy
from pmtrans.losses.multi_sample_contrastive import affinity, multi_sample_contrastive_loss, neighbour_labels
from pmtrans.losses.nuclear_norm import batch_nuclear_norm_loss
from pmtrans.losses.prototype_transport import prototype_posterior, prototype_transport_loss
from pmtrans.losses.self_penalisation import self_penalisation
from pmtrans.losses.self_refinement import self_refinement_loss
from pmtrans.losses.semantic_augmentation import augmented_logits
from pmtrans.losses.sliced_wasserstein import sliced_wasserstein
from pmtrans.losses.symmetric_entropy import symmetric_entropy
from pmtrans.losses.unknown_separation import unknown_separation_loss
from pmtrans.losses.weighted_cross_entropy import weighted_cross_entropy


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


A, B, C, D = (normal(6, 4, seed=seed, scale=2.0) for seed in range(4))
LABELS, OTHERS = torch.tensor([0, 1, 2, 3, 0, 1]), torch.tensor([1, 1, 0, 2, 3, 0])
SHARE, SURE = torch.linspace(0.1, 0.9, 6), torch.tensor([True, False, True, True, False, True])
ALIKE = label_similarity(LABELS)
PRIOR = torch.tensor([0.1, 0.2, 0.3, 0.4])
EVERY_LOSS: dict[str, tuple[Callable[..., Tensor], tuple[Any, ...]]] = {
    "bidirectional matching": (bidirectional_matching, (A, LABELS, SURE)),
    "category confusion": (category_confusion, (A, LABELS % 2)),
    "class balance": (class_balance_loss, (A,)),
    "class confusion": (minimum_class_confusion, (A,)),
    "classification": (classification_loss, (A, LABELS)),
    "classifier discrepancy": (classifier_discrepancy, (A, B)),
    "consistency": (consistency_loss, (A, B)),
    "distillation": (distillation_loss, (A, B)),
    "domain adversarial": (domain_adversarial_loss, (A, B)),
    "domain confusion": (domain_confusion, (A,)),
    "entropy": (entropy, (A,)),
    "entropy of the mean": (entropy_of_mean, (A,)),
    "entropy of two halves": (symmetric_entropy, (A,)),
    "fixed-ratio mixup": (fixed_ratio_mixup, (A, LABELS, OTHERS, 0.3)),
    "information maximisation": (information_maximisation_loss, (A,)),
    "Jensen-Shannon": (jensen_shannon, (A, B)),
    "kernel Bures": (conditional_kernel_bures_loss, (A, B, C, D)),
    "MMD": (maximum_mean_discrepancy, (A, B)),
    "CDD": (contrastive_domain_discrepancy, (A, B, LABELS, OTHERS, 4)),
    "margin disparity": (margin_disparity, (A, B, C, D, 3.0)),
    "masked consistency": (masked_consistency_loss, (A, B)),
    "mixup in features": (mixup_feature_loss, (A, B, C, ALIKE, ALIKE, SHARE, 1 - SHARE)),
    "mixup in labels": (mixup_label_loss, (A, LABELS, OTHERS, SHARE, 1 - SHARE)),
    "affinity": (affinity, (A, B)),
    "contrastive": (multi_sample_contrastive_loss, (affinity(A, B), LABELS, OTHERS, torch.ones(6, dtype=torch.bool))),
    "nuclear norm": (batch_nuclear_norm_loss, (A,)),
    "pairwise divergence": (pairwise_divergence, (A, B, LABELS[:, None] == OTHERS[None], 10.0)),
    "posterior": (prototype_posterior, (A[:4], B, PRIOR)),
    "prototype transport": (prototype_transport_loss, (A[:4], B, PRIOR)),
    "self-penalisation": (self_penalisation, (A, LABELS, SURE, torch.tensor(5.0))),
    "self-refinement": (self_refinement_loss, (A, B)),
    "semantic augmentation": (augmented_logits, (A, LABELS, B[:4], C[:4], D, OTHERS, 0.3)),
    "sliced Wasserstein": (sliced_wasserstein, (A, B)),
    "two halves": (domain_loss, (A, B)),
    "unknown separation": (unknown_separation_loss, (A, SURE)),
    "weighted cross entropy": (weighted_cross_entropy, (A, LABELS)),
    "weighted information": (weighted_information_loss, (A, SHARE, torch.tensor([1.0, 0.0, 1.0, 1.0]))),
}


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_half_precision_inputs_give_what_float32_gives_of_the_same_numbers(name: str) -> None:
    loss, given = EVERY_LOSS[name]
    half = [x.bfloat16() if isinstance(x, Tensor) and x.is_floating_point() else x for x in given]
    torch.manual_seed(0)
    expected = loss(*(x.float() if isinstance(x, Tensor) and x.is_floating_point() else x for x in half))
    torch.manual_seed(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = loss(*half)
    assert got.dtype == torch.float32
    assert got.flatten().tolist() == pytest.approx(expected.flatten().tolist(), rel=1e-6, abs=1e-7)


def test_class_confusion_has_the_temperature_of_the_paper() -> None:
    p = softmax(A.double().numpy() / 2.5, axis=1)
    weight = 1 + np.exp(-entr(p).sum(1))
    confusion = p.T @ np.diag(weight) @ p
    confusion /= confusion.sum(1, keepdims=True)
    expected = (confusion.sum() - np.trace(confusion)) / 4
    assert float(minimum_class_confusion(A)) == pytest.approx(expected, rel=1e-5)


def test_labels_are_smoothed_by_a_tenth() -> None:
    log_p = log_softmax(A.double().numpy(), axis=1)
    expected = [-0.9 * log_p[i, y] - 0.1 * log_p[i].mean() for i, y in enumerate(LABELS.tolist())]
    assert float(classification_loss(A, LABELS)) == pytest.approx(np.mean(expected), rel=1e-5)


def test_the_discriminator_calls_the_source_one_and_both_domains_count_half() -> None:
    source, target = [0.5, -1.0, 2.0], [1.5, 0.0]
    weights, others = [0.5, 1.5, 1.0], [0.2, 1.8]
    s = [-w * math.log(1 / (1 + math.exp(-z))) for z, w in zip(source, weights, strict=True)]
    t = [-w * math.log(1 - 1 / (1 + math.exp(-z))) for z, w in zip(target, others, strict=True)]
    got = domain_adversarial_loss(*(torch.tensor(values) for values in (source, target, weights, others)))
    assert float(got) == pytest.approx((sum(s) / 3 + sum(t) / 2) / 2, rel=1e-5)


def test_the_mean_over_a_single_pair_is_its_value() -> None:
    chosen = torch.tensor([[False, True], [False, False]])
    assert float(mean_over_pairs(torch.tensor([[1.0, 5.0], [2.0, 3.0]]), chosen)) == 5.0


def plain_kernel(points: np.ndarray, scales: tuple[float, ...] = (1.0,)) -> np.ndarray:
    distances, bandwidth = cdist(points, points, "sqeuclidean"), np.mean(pdist(points, "sqeuclidean"))
    return np.asarray(sum(np.exp(-distances / (bandwidth * scale)) for scale in scales))


def test_kernel_bures_has_one_gaussian_each_and_epsilon_of_a_hundredth() -> None:
    x, y = (plain_kernel(torch.cat(pair).double().numpy()) for pair in ((A, B), (C, D)))
    expected = conditional_bures_distance(torch.from_numpy(x), torch.from_numpy(y), 6, 0.01)
    got = conditional_kernel_bures_loss(A.double(), B.double(), C.double(), D.double())
    assert float(got) == pytest.approx(float(expected), rel=1e-9)


def test_an_even_number_of_kernels_has_one_more_narrow_one() -> None:
    both = torch.cat([A, B]).double()
    scales = (0.25, 0.5, 1.0, 2.0)
    assert np.allclose(gaussian_kernel(both, 4).numpy(), plain_kernel(both.numpy(), scales), rtol=1e-9)
    assert np.allclose(gaussian_kernel(both).numpy(), plain_kernel(both.numpy()), rtol=1e-9)


def test_kernels_do_not_depend_on_the_unit_of_the_features() -> None:
    both = torch.cat([A, B]).double()
    assert np.allclose(gaussian_kernel(1e-4 * both), gaussian_kernel(both), rtol=1e-6)
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    large, small = (contrastive_domain_discrepancy(factor * A, factor * B, labels, labels, 3) for factor in (1.0, 0.05))
    assert float(small) == pytest.approx(float(large), rel=1e-4)


def test_kernels_of_one_image_or_of_equal_ones_are_one() -> None:
    assert gaussian_kernel(torch.ones(1, 3)).tolist() == [[1.0]]
    assert (gaussian_kernel(torch.ones(3, 3)) == 1).all()


def test_no_squared_distance_is_negative() -> None:
    points = normal(200, 64)
    assert float(squared_distances(points, points.clone()).min()) == 0.0


def test_cdd_counts_a_class_of_one_source_image_and_takes_any_number_of_kernels() -> None:
    source, target = normal(4, 3), normal(5, 3, seed=1)
    labels_s, labels_t = [0, 1, 1, 2], [0, 0, 1, 2, 2]

    def discrepancy(c: int, d: int) -> float:
        mine = [source[i].numpy() for i in range(4) if labels_s[i] == c]
        theirs = [target[i].numpy() for i in range(5) if labels_t[i] == d]
        kernel, n = plain_kernel(np.stack(mine + theirs), (0.5, 1.0)), len(mine)
        return float(kernel[:n, :n].mean() + kernel[n:, n:].mean() - 2 * kernel[:n, n:].mean())

    intra = np.mean([discrepancy(c, c) for c in range(3)])
    inter = np.mean([discrepancy(c, d) for c in range(3) for d in range(3) if c != d])
    got = contrastive_domain_discrepancy(source, target, torch.tensor(labels_s), torch.tensor(labels_t), 3, count=2)
    assert float(got) == pytest.approx(intra - inter, rel=1e-4)


def test_the_feature_space_has_a_temperature_of_one_by_default() -> None:
    given = (A, B, C, ALIKE, ALIKE, SHARE, 1 - SHARE)
    expected = 0.0
    for other, weights in ((B, SHARE), (C, 1 - SHARE)):
        for i in range(6):
            unit = [other[j].double() / other[j].double().norm() for j in range(6)]
            cosines = np.array([float(A[i].double() @ unit[j] / A[i].double().norm()) for j in range(6)])
            same = np.array([float(LABELS[i] == LABELS[j]) for j in range(6)])
            expected -= float(weights[i]) * float((same / same.sum()) @ log_softmax(cosines)) / 6
    assert float(mixup_feature_loss(*given)) == pytest.approx(expected, rel=1e-5)


def test_more_votes_win_over_a_nearer_neighbour_and_one_voter_decides_alone() -> None:
    near = torch.tensor([[1.0], [0.1], [0.1], [0.05]])
    labels = torch.tensor([0, 1, 1, 0])
    assert neighbour_labels(near, labels, classes=3, neighbours=3)[0].tolist() == [1]
    assert neighbour_labels(near, labels, classes=3, neighbours=1)[0].tolist() == [0]


def test_the_ratio_counts_what_a_class_lacks_as_nothing() -> None:
    near = torch.tensor([[0.9], [0.5], [0.4]], requires_grad=True)
    voted, ratio = neighbour_labels(near, torch.tensor([0, 1, 1]), classes=2, neighbours=3)
    assert voted.tolist() == [1]
    assert ratio.tolist() == pytest.approx([(0.5 + 0.4) / 0.9])
    assert not ratio.requires_grad
    _, alone = neighbour_labels(near, torch.tensor([0, 0, 0]), classes=2, neighbours=2)
    assert alone.isfinite().all()
    assert float(alone) == pytest.approx(1.4 / 1e-12, rel=1e-5)


def test_the_contrastive_loss_of_one_source_is_its_own_and_of_none_is_zero() -> None:
    phi = torch.tensor([[0.9, 0.2], [0.3, 0.4]])
    kept = torch.ones(2, dtype=torch.bool)
    got = multi_sample_contrastive_loss(phi, torch.tensor([0, 5]), torch.tensor([0, 1]), kept)
    assert float(got) == pytest.approx(-math.log(math.exp(0.9) / (math.exp(0.9) + math.exp(0.2))), rel=1e-5)
    assert float(multi_sample_contrastive_loss(phi, torch.tensor([4, 5]), torch.tensor([0, 1]), kept)) == 0.0


def test_self_refinement_asks_for_more_than_the_confidence() -> None:
    even, other = torch.zeros(1, 2), torch.tensor([[1.0, 0.0]])
    assert float(self_refinement_loss(even, other, 0.5)) == 0.0
    p, q = (softmax(z.double().numpy(), axis=1) for z in (even, other))
    assert float(self_refinement_loss(even, other, 0.49)) == pytest.approx(rel_entr(p, q).sum(), rel=1e-5)
    teacher = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.2, 0.0, 0.0]])  # sure by 0.33, 0.58 and 0.38
    p, q = softmax(teacher.double().numpy(), axis=1), softmax(A[:3, :3].double().numpy(), axis=1)
    assert float(self_refinement_loss(teacher, A[:3, :3])) == pytest.approx(rel_entr(p[1], q[1]).sum(), rel=1e-5)


def test_a_single_target_image_shifts_its_class_by_its_whole_mean() -> None:
    weight, means = B[:3].double(), C[:3].double()
    memory, logits = D[:2].double(), A[:1, :3].double()
    got = augmented_logits(logits, torch.tensor([1]), weight, means, memory, torch.tensor([1, -1]), 0.5)
    shift = [0.5 * float((weight[c] - weight[1]) @ (memory[0] - means[1])) for c in range(3)]  # one image: no variance
    assert got[0].tolist() == pytest.approx([float(logits[0, c]) + shift[c] for c in range(3)])


def test_the_slices_are_128_directions_by_default() -> None:
    torch.manual_seed(3)
    got = float(sliced_wasserstein(A, B))
    torch.manual_seed(3)
    directions = torch.randn(4, 128).double().numpy()
    costs = []
    for direction in directions.T / np.linalg.norm(directions, axis=0)[:, None]:
        costs.append(np.mean((np.sort(A.double().numpy() @ direction) - np.sort(B.double().numpy() @ direction)) ** 2))
    assert got == pytest.approx(np.mean(costs), rel=1e-5)


def test_tradeoffs_begin_at_their_value_and_weigh_each_loss_by_its_own() -> None:
    feature, label = torch.tensor(2.0), torch.tensor(3.0)
    assert float(Tradeoff("learned", 0.25).alpha(0.0)) == pytest.approx(0.25)
    assert float(Tradeoff("fixed")(feature, label, 0.3)) == pytest.approx(5.0)
    softplus = Tradeoff("softplus")
    assert softplus.raw.tolist() == [-2.0, -2.0]
    with torch.no_grad():
        softplus.raw.copy_(torch.tensor([0.5, -1.0]))
    weights = [math.log1p(math.exp(0.5)), math.log1p(math.exp(-1.0))]
    assert float(softplus(feature, label, 0.3).detach()) == pytest.approx(2 * weights[0] + 3 * weights[1], rel=1e-5)
    assert float(softplus.alpha(0.3)) == pytest.approx(sum(weights) / 2, rel=1e-5)
