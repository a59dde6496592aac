"""SWD (Lee et al., Sliced Wasserstein Discrepancy for Unsupervised Domain Adaptation, CVPR 2019).

The three steps of MCD, with the sliced Wasserstein distance between the two classifiers' predictions.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from pmtrans.losses.sliced_wasserstein import sliced_wasserstein
from pmtrans.methods.mcd import MCD, MCDOptions
from pmtrans.methods.method import Sizes
from pmtrans.model import Model


class SWDOptions(MCDOptions):
    """Switches of SWD."""

    projections: int = Field(128, ge=1, description="random directions that the predictions are projected on")


class SWD(MCD):
    """MCD that moves predictions along the shortest transport, not class by class."""

    title = "SWD"
    paper = "Sliced Wasserstein Discrepancy for Unsupervised Domain Adaptation, CVPR 2019"
    year = 2019
    needs = "three kinds of steps, 2 + repeats per batch; a second classifier"

    options: SWDOptions

    def __init__(self, model: Model, options: SWDOptions, sizes: Sizes) -> None:
        super().__init__(model, options, sizes)

    def discrepancy(self, first_BK: Tensor, second_BK: Tensor) -> Tensor:
        return sliced_wasserstein(first_BK.float().softmax(1), second_BK.float().softmax(1), self.options.projections)
