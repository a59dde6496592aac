from __future__ import annotations

import math

import pytest
import torch

from pmtrans.losses import (
    Tradeoff,
    classification_loss,
    identity_similarity,
    label_similarity,
    mixup_feature_loss,
    mixup_label_loss,
)
from pmtrans.losses.tradeoff import ramp


def log_softmax(row: list[float]) -> list[float]:
    total = math.log(sum(math.exp(value) for value in row))
    return [value - total for value in row]


def cosine(a: list[float], b: list[float]) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))


def test_classification_loss_smooths_labels() -> None:
    logits, label = [2.0, -1.0, 0.5], 2
    log_p = log_softmax(logits)
    expected = -sum((0.9 * (k == label) + 0.1 / 3) * log_p[k] for k in range(3))
    assert float(classification_loss(torch.tensor([logits]), torch.tensor([label]), 0.1)) == pytest.approx(expected)


@pytest.mark.parametrize("with_confidence", [False, True])
def test_label_space_loss_in_plain_loops(with_confidence: bool) -> None:
    torch.manual_seed(0)
    logits, y_s, y_t = torch.randn(5, 4), torch.tensor([0, 1, 2, 3, 0]), torch.tensor([1, 1, 0, 2, 3])
    w_s, trust = torch.rand(5), torch.rand(5)
    expected = 0.0
    for i in range(5):
        log_p = log_softmax(logits[i].tolist())
        weight = float(1 - w_s[i]) * (float(trust[i]) if with_confidence else 1)
        expected += (float(w_s[i]) * -log_p[int(y_s[i])] + weight * -log_p[int(y_t[i])]) / 5
    got = mixup_label_loss(logits, y_s, y_t, w_s, 1 - w_s, trust if with_confidence else None)
    assert float(got) == pytest.approx(expected, rel=1e-5)


def test_a_normalised_confidence_shifts_weight_between_images_and_not_to_the_source() -> None:
    """sum(lambda^t c CE) / sum(lambda^t c) * sum(lambda^t) / B, as in the authors' code."""
    torch.manual_seed(0)
    logits, y_s, y_t = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1]), torch.tensor([1, 1, 2, 0, 2])
    w_s, trust = torch.rand(5), torch.rand(5)
    ce_s, ce_t = ([-log_softmax(logits[i].tolist())[int(y[i])] for i in range(5)] for y in (y_s, y_t))
    w_t, c = (1 - w_s).tolist(), trust.tolist()
    trusted = sum(w_t[i] * c[i] * ce_t[i] for i in range(5)) / sum(w_t[i] * c[i] for i in range(5))
    expected = sum(float(w_s[i]) * ce_s[i] for i in range(5)) / 5 + trusted * sum(w_t) / 5
    for scale in (1.0, 0.01, 30.0):
        got = mixup_label_loss(logits, y_s, y_t, w_s, 1 - w_s, scale * trust, normalised=True)
        assert float(got) == pytest.approx(expected, rel=1e-5)
    nothing = mixup_label_loss(logits, y_s, y_t, w_s, 1 - w_s, 0 * trust, normalised=True)
    assert float(nothing) == pytest.approx(sum(float(w_s[i]) * ce_s[i] for i in range(5)) / 5, rel=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.1])
@pytest.mark.parametrize("class_information", [False, True])
def test_feature_space_loss_in_plain_loops(temperature: float, class_information: bool) -> None:
    torch.manual_seed(0)
    f_i, f_s, f_t = torch.randn(4, 6), torch.randn(4, 6), torch.randn(4, 6)
    y_s, y_t, w_s = [0, 1, 0, 2], [1, 1, 2, 0], torch.rand(4)
    expected = 0.0
    for i in range(4):
        for other, labels, weight, plain in (
            (f_s, y_s, float(w_s[i]), True),
            (f_t, y_t, float(1 - w_s[i]), class_information),
        ):
            log_p = log_softmax([cosine(f_i[i].tolist(), row.tolist()) / temperature for row in other])
            same = [float(labels[i] == labels[j]) if plain else float(i == j) for j in range(4)]
            expected += weight * -sum(same[j] / sum(same) * log_p[j] for j in range(4)) / 4
    by_target = label_similarity(torch.tensor(y_t)) if class_information else identity_similarity(torch.tensor(y_t))
    got = mixup_feature_loss(f_i, f_s, f_t, label_similarity(torch.tensor(y_s)), by_target, w_s, 1 - w_s, temperature)
    assert float(got) == pytest.approx(expected, rel=1e-5)


def test_label_similarity_by_hand() -> None:
    labels = torch.tensor([3, 1, 3])
    assert label_similarity(labels).tolist() == [[0.5, 0, 0.5], [0, 1, 0], [0.5, 0, 0.5]]
    assert label_similarity(labels, "sum").tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]


def test_losses_are_float32_under_autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = torch.randn(4, 8) @ torch.randn(8, 3)  # bfloat16 in here
        assert logits.dtype == torch.bfloat16
        assert classification_loss(logits, torch.tensor([0, 1, 2, 0])).dtype == torch.float32
        mixed, source, target = (torch.randn(4, 6).bfloat16() for _ in range(3))
        labels, weight = torch.tensor([0, 1, 2, 0]), torch.rand(4)
        similarity = label_similarity(labels)
        assert (
            mixup_feature_loss(mixed, source, target, similarity, similarity, weight, 1 - weight).dtype == torch.float32
        )


def test_learned_tradeoff_settles_where_each_weight_is_one_over_its_loss() -> None:
    tradeoff = Tradeoff("learned", 1.0)
    optimiser = torch.optim.Adam(tradeoff.parameters(), lr=0.05)
    for _ in range(400):
        optimiser.zero_grad()
        tradeoff(torch.tensor(2.0), torch.tensor(3.0), 0.5).backward()
        optimiser.step()
    weights = [math.exp(-r) for r in tradeoff.log_variance.tolist()]
    assert weights == pytest.approx([1 / 2, 1 / 3], rel=1e-2)  # d/dr (exp(-r) L + r) = 0
    assert float(tradeoff.alpha(0.5)) == pytest.approx((1 / 2 + 1 / 3) / 2, rel=1e-2)


def test_the_other_tradeoffs() -> None:
    feature, label = torch.tensor(2.0), torch.tensor(3.0)
    assert float(Tradeoff("fixed", 0.4)(feature, label, 0.1)) == pytest.approx(0.4 * 5)
    assert float(Tradeoff("ramp", 0.5)(feature, label, 0.1)) == pytest.approx(0.5 * (2 / (1 + math.exp(-1)) - 1) * 5)
    assert float(Tradeoff("softplus")(feature, label, 0.1)) == pytest.approx(math.log1p(math.exp(-2)) * 5, rel=1e-5)
    assert ramp(0) == 0
