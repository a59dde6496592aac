"""Agreement of a model with clusters, class means and another model, against plain loops."""

from __future__ import annotations

import math

import pytest
import torch

from made_up_evidence import EvidenceMaker
from pmtrans.selection.agreement import agreement, class_mean_agreement


def unit(vector: list[float]) -> list[float]:
    length = math.sqrt(sum(value * value for value in vector))
    return [value / length for value in vector]


@pytest.mark.parametrize(("images", "classes"), [(37, 5), (12, 6), (5, 4)])
def test_class_means_are_those_of_all_other_images(made_up: EvidenceMaker, images: int, classes: int) -> None:
    evidence = made_up(targets=images, classes=classes)
    features = [unit(row) for row in evidence.target_features_MD.double().tolist()]
    predicted = evidence.target_predictions_M().tolist()
    same = 0
    for own, feature in enumerate(features):
        best, nearest = -math.inf, -1
        for k in range(classes):
            others = [f for i, f in enumerate(features) if predicted[i] == k and i != own]
            if others:
                mean = unit([sum(column) for column in zip(*others, strict=True)])
                cosine = sum(a * b for a, b in zip(mean, feature, strict=True))
                best, nearest = (cosine, k) if cosine > best else (best, nearest)
        same += nearest == predicted[own]
    found = class_mean_agreement(evidence.target_features_MD, evidence.target_predictions_M(), classes)
    assert found == pytest.approx(same / images)


def test_an_image_alone_in_its_class_has_nobody_to_vouch_for_it() -> None:
    features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    assert class_mean_agreement(features, torch.tensor([0, 0, 1]), 2) == pytest.approx(2 / 3)


def test_agreement_is_the_share_of_equal_predictions() -> None:
    assert agreement(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1, 1, 2])) == 0.75
