"""Accuracy on the held-out part of each of several sources."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pmtrans.data.domain import LabelledDomain

PREFIX = "source_accuracy."


def per_source_accuracy(holdout: LabelledDomain, logits_MK: Tensor) -> dict[str, float]:
    """``source_accuracy.NAME`` of each source with held-out images; nothing where there is a single source."""
    if not holdout.sources:
        return {}
    right_M = logits_MK.argmax(1).cpu() == torch.tensor(holdout.labels)
    return {
        PREFIX + name: right_M[torch.tensor(places)].double().mean().item()
        for name, places in zip(holdout.sources, places_of(holdout), strict=True)
        if places
    }


def places_of(domain: LabelledDomain) -> Sequence[list[int]]:
    """The places of the images of each source."""
    places: list[list[int]] = [[] for _ in domain.sources]
    for place, origin in enumerate(domain.origins):
        places[origin].append(place)
    return places
