"""PatchMix and its ablations: tokens of two domains -> tokens of the intermediate domain."""

from typing import TYPE_CHECKING, Literal

from pmtrans.mixing.beta import LearnableBeta
from pmtrans.mixing.cutmix import CutMix
from pmtrans.mixing.cutout import CutOut
from pmtrans.mixing.hierarchical import HierarchicalPatchMix
from pmtrans.mixing.label_weights import label_weights, uniform_scores
from pmtrans.mixing.manifold_mixup import ManifoldMixup
from pmtrans.mixing.mixing import Mixed, Mixing, Scores
from pmtrans.mixing.mixup import Mixup
from pmtrans.mixing.patchmix import PatchMix
from pmtrans.mixing.tokenmix import TokenMix
from pmtrans.mixing.transmix import TransMix

MIXINGS: dict[str, type[Mixing]] = {
    "patchmix": PatchMix,
    "hierarchical": HierarchicalPatchMix,
    "mixup": Mixup,
    "manifold_mixup": ManifoldMixup,
    "cutmix": CutMix,
    "cutout": CutOut,
    "transmix": TransMix,
    "tokenmix": TokenMix,
}
if TYPE_CHECKING:
    MixingName = str
else:
    MixingName = Literal[tuple(MIXINGS)]  # for the switches of a method: any other name is refused

__all__ = [
    "MIXINGS",
    "CutMix",
    "CutOut",
    "HierarchicalPatchMix",
    "LearnableBeta",
    "ManifoldMixup",
    "Mixed",
    "Mixing",
    "MixingName",
    "Mixup",
    "PatchMix",
    "Scores",
    "TokenMix",
    "TransMix",
    "label_weights",
    "uniform_scores",
]
