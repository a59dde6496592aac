"""The PatchMix module and its ablations: tokens of two domains -> tokens of the one between."""

from pmtrans.mixing.beta import LearnableBeta
from pmtrans.mixing.cutmix import CutMix
from pmtrans.mixing.label_weights import label_weights, uniform_scores
from pmtrans.mixing.mixing import Mixed, Mixing
from pmtrans.mixing.mixup import Mixup
from pmtrans.mixing.patchmix import PatchMix

MIXINGS: dict[str, type[Mixing]] = {"patchmix": PatchMix, "mixup": Mixup, "cutmix": CutMix}

__all__ = [
    "MIXINGS",
    "CutMix",
    "LearnableBeta",
    "Mixed",
    "Mixing",
    "Mixup",
    "PatchMix",
    "label_weights",
    "uniform_scores",
]
