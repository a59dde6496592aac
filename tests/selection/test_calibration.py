from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from made_up_evidence import EvidenceMaker
from pmtrans.selection.calibration import HIGHEST, LOWEST, expected_calibration_error, fit_temperature


def smoothed_loss(logits: Tensor, labels: Tensor, temperature: float) -> float:
    images, classes = logits.shape
    doubt = 1 / (images + 2)
    total = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        scaled = [value / temperature for value in row]
        log_sum = max(scaled) + math.log(sum(math.exp(v - max(scaled)) for v in scaled))
        total -= sum(((1 - doubt) * (c == label) + doubt / classes) * (v - log_sum) for c, v in enumerate(scaled))
    return total / images


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 4.0])
def test_the_temperature_is_the_best_of_a_fine_grid(made_up: EvidenceMaker, sharpness: float) -> None:
    evidence = made_up(sharpness=sharpness)
    logits, labels = evidence.source_logits_NK, evidence.source_labels_N
    grid = np.geomspace(LOWEST, HIGHEST, 1500)
    best = grid[np.argmin([smoothed_loss(logits, labels, t) for t in grid])]
    assert fit_temperature(logits, labels) == pytest.approx(best, rel=0.005)


def test_scaling_the_logits_scales_the_temperature(made_up: EvidenceMaker) -> None:
    evidence = made_up(sources=200)
    once = fit_temperature(evidence.source_logits_NK, evidence.source_labels_N)
    thrice = fit_temperature(3.0 * evidence.source_logits_NK, evidence.source_labels_N)
    assert thrice == pytest.approx(3.0 * once, rel=1e-4)


def test_a_hold_out_without_errors_does_not_prove_certainty() -> None:
    labels = torch.arange(50) % 5
    logits = torch.nn.functional.one_hot(labels, 5).float()
    confidence = (logits / fit_temperature(logits, labels)).softmax(1).max(1).values.mean().item()
    assert confidence == pytest.approx(1 - (1 / 52) * (4 / 5), abs=1e-4)


def test_the_calibration_error_equals_a_loop_over_bins() -> None:
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.randn(200, 3, generator=generator).softmax(1)
    labels = torch.randint(3, (200,), generator=generator)
    confidence, predicted = probabilities.double().max(1)
    expected = 0.0
    for b in range(10):
        inside = [i for i in range(200) if b / 10 < confidence[i] <= (b + 1) / 10]
        if inside:
            accuracy = np.mean([bool(predicted[i] == labels[i]) for i in inside])
            expected += len(inside) / 200 * abs(accuracy - confidence[inside].mean().item())
    assert expected_calibration_error(probabilities, labels, bins=10) == pytest.approx(expected)


def test_certain_and_right_is_calibrated_certain_and_wrong_is_not() -> None:
    probabilities, labels = torch.eye(3), torch.arange(3)
    assert expected_calibration_error(probabilities, labels) == 0.0
    assert expected_calibration_error(probabilities, labels.roll(1)) == 1.0
