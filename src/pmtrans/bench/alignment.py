"""The part of a step that aligns the two domains, alone: PMTrans's own, and cross-attention of the CDTrans kind.

What the paper compares in its appendix ("Complexity"): n patches, d width, c classes; O(d + c + n) against O(n^2 d)
per layer. Both methods send a third stream of tokens through the transformer beside source and target; that is the
same for both and stands in neither. Shapes: B pairs, N patches, D width, K classes, H heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pmtrans.losses import identity_similarity, label_similarity, mixup_feature_loss, mixup_label_loss
from pmtrans.mixing import LearnableBeta, PatchMix, label_weights
from pmtrans.pseudo_labels import kmeans_pseudo_labels


@dataclass(frozen=True)
class Shape:
    """The sizes that the cost depends on."""

    patches: int = 196
    width: int = 384
    classes: int = 65
    pairs: int = 8
    layers: int = 1  # of cross-attention: a transformer has 12 or more; PMTrans mixes once, before the first


@dataclass(frozen=True)
class Alignment:
    """``inputs`` come from the backbone, ``run`` gives what goes back to it or into the loss."""

    inputs: Sequence[Tensor]
    run: Callable[[], Sequence[Tensor]]


def mixing(shape: Shape, device: str = "cpu") -> Alignment:
    """PatchMix: ratios from the Beta, mixed tokens, and label weights from attention scores."""
    source, target = _tokens(shape, device), _tokens(shape, device)
    scores = _random(shape.pairs, shape.patches, device=device).softmax(1)
    side = math.isqrt(shape.patches)
    grid = (side, side) if side * side == shape.patches else (1, shape.patches)
    patchmix = PatchMix(LearnableBeta((1.0, 1.0), 0.3, 5.0), grid).to(device)

    def run() -> Sequence[Tensor]:
        mixed = patchmix.mix(source, target)
        return mixed.tokens_BND, label_weights(mixed.ratio_BN, scores, scores)[0]

    return Alignment((source, target, scores), run)


def losses(shape: Shape, device: str = "cpu") -> Alignment:
    """L_f on features and L_l on logits."""
    features = [_random(shape.pairs, shape.width, device=device).requires_grad_() for _ in range(3)]
    logits = _random(shape.pairs, shape.classes, device=device).requires_grad_()
    labels = torch.arange(shape.pairs, device=device) % shape.classes
    weight = torch.full((shape.pairs,), 0.5, device=device)

    def run() -> Sequence[Tensor]:
        similar = label_similarity(labels), identity_similarity(labels)
        feature_space = mixup_feature_loss(features[0], features[1], features[2], *similar, weight, 1 - weight)
        return (feature_space + mixup_label_loss(logits, labels, labels, weight, 1 - weight),)

    return Alignment((*features, logits), run)


def pseudo_labels(shape: Shape, device: str = "cpu") -> Alignment:
    """One step's share of the k-means of an epoch, whose cost is linear in the images: that of B images."""
    features = _random(shape.pairs, shape.width, device=device)
    logits = _random(shape.pairs, shape.classes, device=device)
    return Alignment((features, logits), lambda: (kmeans_pseudo_labels(features, logits_MK=logits),))


def pmtrans(shape: Shape, device: str = "cpu") -> Alignment:
    """All three."""
    parts = [part(shape, device) for part in (mixing, losses, pseudo_labels)]
    return Alignment(
        [tensor for part in parts for tensor in part.inputs],
        lambda: [output for part in parts for output in part.run()],
    )


def cross_attention(shape: Shape, device: str = "cpu", fused: bool = False) -> Alignment:
    """In each layer queries of the source meet keys and values of the target (CDTrans, ICLR 2022, Section 3.2).

    As the paper counts it: similarities and the weighted sum, without projections. ``fused`` never writes the N x N
    map down, which changes the memory, not the number of operations.
    """
    heads = max(1, shape.width // 64)
    inputs = [
        _random(shape.pairs, heads, shape.patches, shape.width // heads, device=device).requires_grad_()
        for _ in range(3)
    ]
    query, key, value = inputs

    def run() -> Sequence[Tensor]:
        if fused:
            return [F.scaled_dot_product_attention(query, key, value) for _ in range(shape.layers)]
        scale = query.shape[-1] ** -0.5
        return [((scale * query) @ key.mT).softmax(-1) @ value for _ in range(shape.layers)]

    return Alignment(inputs, run)


def fused_cross_attention(shape: Shape, device: str = "cpu") -> Alignment:
    return cross_attention(shape, device, fused=True)


ALIGNMENTS: dict[str, Callable[..., Alignment]] = {
    "mixing": mixing,
    "losses": losses,
    "pseudo labels": pseudo_labels,
    "PMTrans, all": pmtrans,
    "cross-attention": cross_attention,
    "cross-attention, fused": fused_cross_attention,
}


def _random(*sizes: int, device: str) -> Tensor:
    return torch.randn(*sizes, device=device)


def _tokens(shape: Shape, device: str) -> Tensor:
    return _random(shape.pairs, shape.patches, shape.width, device=device).requires_grad_()
