"""Two models of known accuracy on a simulated target: what an adaptation that helps, or hurts, leaves behind.

Classes are Gaussian clusters. On the target each lies part of the way to the next class, so that the source's
boundary cuts through it. The baseline classifies by the source's centres; adapted models are made to order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from pmtrans.selection.evidence import Evidence

CLASSES = 6
WIDTH = 12
NOISE = 0.5  # clusters stay clusters: what arbitration presumes
EVEN = [1 / CLASSES] * CLASSES


@dataclass(frozen=True)
class Simulation:
    baseline: Evidence
    truth_M: Tensor  # known to the test alone

    def accuracy(self, evidence: Evidence) -> float:
        return (evidence.target_predictions_M() == self.truth_M).double().mean().item()

    def adapted_to(self, calls_M: Tensor) -> Evidence:
        """A model as sure of itself as self-training makes one, whatever it calls the images."""
        generator = torch.Generator().manual_seed(1)
        source_NK = self.baseline.source_logits_NK
        return replace(
            self.baseline,
            source_logits_NK=source_NK + torch.randn(source_NK.shape, generator=generator),
            target_logits_MK=12.0 * one_hot(calls_M, CLASSES).float(),
        )


def simulate(shares: list[float], *, images: int = 600, displacement: float = 0.4, seed: int = 0) -> Simulation:
    """``shares`` are the target's class shares, ``displacement`` the part of the way."""
    generator = torch.Generator().manual_seed(seed)
    centres_KD = 3.0 * one_hot(torch.arange(CLASSES), WIDTH).float()
    target_centres_KD = torch.lerp(centres_KD, centres_KD.roll(-1, dims=0), displacement)

    def draw(centres: Tensor, labels: Tensor) -> Tensor:
        return centres[labels] + NOISE * torch.randn(len(labels), WIDTH, generator=generator)

    def logits(features: Tensor) -> Tensor:
        return -torch.cdist(features, centres_KD).square() / 2.0

    labels_N = torch.arange(300) % CLASSES
    truth_M = torch.multinomial(torch.tensor(shares), images, replacement=True, generator=generator)
    source, target = draw(centres_KD, labels_N), draw(target_centres_KD, truth_M)
    return Simulation(Evidence(source, logits(source), labels_N, target, logits(target)), truth_M)
