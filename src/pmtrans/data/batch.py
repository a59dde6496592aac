"""The data of one training step. There is no field for target labels, so no method can read them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pmtrans.machine import copy_to


@dataclass
class Batch:
    """B pairs, paired by position. ``*_index`` are positions in the domain, as memory banks need them."""

    source_images: Tensor
    source_labels: Tensor
    source_index: Tensor
    target_images: Tensor
    target_index: Tensor

    def to(self, device: torch.device) -> Batch:
        """Copy to the device, asynchronously where the memory is pinned."""
        return Batch(*(copy_to(getattr(self, name), device) for name in self.__dataclass_fields__))

    def pin_memory(self) -> Batch:
        """Called by the data loader."""
        return Batch(*(getattr(self, name).pin_memory() for name in self.__dataclass_fields__))
