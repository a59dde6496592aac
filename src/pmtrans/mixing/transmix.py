"""TransMix (Chen et al., CVPR 2022): CutMix with labels weighted by the attention in the mixed image."""

from __future__ import annotations

from torch import Tensor

from pmtrans.mixing.cutmix import CutMix
from pmtrans.mixing.mixing import Scores


class TransMix(CutMix):
    """lambda^s = (area + attention mass of the source's patches) / 2, attention of the mixed image in the last block.

    Without a class token, the mean of the mixed image's activation maps for both labels takes the place of attention.
    """

    scores_mixed = True

    def label_weights(self, ratio_BN: Tensor, scores: Scores) -> tuple[Tensor, Tensor]:
        assert scores.mixed_BN is not None, "the mixed image was not scored"
        weight_B = (ratio_BN.mean(1) + (ratio_BN * scores.mixed_BN).sum(1)) / 2
        return weight_B, 1 - weight_B
