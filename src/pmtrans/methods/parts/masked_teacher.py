"""Masked image consistency (MIC): the student must see with most of an image hidden what its teacher sees whole."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmtrans.ema import EMATeacher
from pmtrans.losses.masked_consistency import masked_consistency_loss
from pmtrans.methods.method import Moment
from pmtrans.model import Model


class MaskedConsistency(nn.Module):
    """Holds the teacher; its loss may be added to that of any method. One more pass of B, one without gradient.

    ``block`` is a side of the hidden squares as a share of the image's (the paper: 64 of 224 pixels), ``ratio`` the
    share of squares that are hidden.
    """

    def __init__(self, model: Model, rate: float = 0.9, block: float = 64 / 224, ratio: float = 0.7) -> None:
        super().__init__()
        self.teacher = EMATeacher(model, rate)
        self.block = block
        self.ratio = ratio

    def forward(self, model: Model, images_BCHW: Tensor) -> Tensor:
        """L_M on clean target images."""
        return masked_consistency_loss(model(self.mask(images_BCHW)), self.teacher(images_BCHW))

    def mask(self, images_BCHW: Tensor) -> Tensor:
        """Squares of each image set to 0, the mean colour of normalised pixels (Eq. 4 and 5)."""
        squares = max(1, round(1 / self.block))
        seen = torch.rand(len(images_BCHW), 1, squares, squares, device=images_BCHW.device) >= self.ratio
        return images_BCHW * F.interpolate(seen.to(images_BCHW.dtype), size=images_BCHW.shape[-2:], mode="nearest")

    def after_step(self, model: Model, moment: Moment) -> None:
        self.teacher.follow(model, moment.step)
