"""Made-up evidence whose truth is known: Gaussian classes, a displaced target, a linear classifier."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pmtrans.selection.evidence import Evidence

EvidenceMaker = Callable[..., Evidence]


@pytest.fixture
def made_up() -> EvidenceMaker:
    def make(
        targets: int = 37,
        classes: int = 5,
        sources: int = 23,
        width: int = 8,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        sharpness: float = 1.0,
    ) -> Evidence:
        generator = torch.Generator().manual_seed(seed)
        centres_KD = torch.randn(classes, width, generator=generator)

        def domain(images: int, displacement: float) -> tuple[torch.Tensor, torch.Tensor]:
            labels = torch.randint(classes, (images,), generator=generator)
            noise = torch.randn(images, width, generator=generator)
            return centres_KD[labels] + 0.7 * noise + displacement, labels

        source, labels = domain(sources, 0.0)
        train, _ = domain(2 * sources, 0.0)
        target, _ = domain(targets, 0.5)
        tensors = (
            source,
            sharpness * source @ centres_KD.T,
            target,
            sharpness * target @ centres_KD.T,
            train,
        )
        source, source_logits, target, target_logits, train = (tensor.to(dtype) for tensor in tensors)
        return Evidence(source, source_logits, labels, target, target_logits, train)

    return make
