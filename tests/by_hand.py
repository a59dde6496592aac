"""Losses written out in plain loops over images and classes, to compare with. Nothing of the package is used here.

Where a gradient is wanted the loops run over tensors of one number each, so that autograd can follow them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def log_softmax(row: Tensor) -> list[Tensor]:
    """Of one image's logits."""
    total = torch.stack([value.exp() for value in row]).sum().log()
    return [value - total for value in row]


def cross_entropy(logits: Tensor, labels: Sequence[int], smoothing: float = 0.0) -> Tensor:
    """The mean over images; a share ``smoothing`` of each label is spread over all classes."""
    losses = []
    for row, label in zip(logits, labels, strict=True):
        log_p = log_softmax(row)
        losses.append(-(1 - smoothing) * log_p[int(label)] - smoothing * sum(log_p) / len(log_p))
    return torch.stack(losses).mean()


def class_confusion(logits: Tensor, temperature: float) -> float:
    """MCC, Eq. 2 to 6 of its paper."""
    images, classes = logits.shape
    p = [[math.exp(float(value)) for value in log_softmax(row / temperature)] for row in logits.detach()]
    weights = [1 + math.exp(sum(value * math.log(value) for value in row)) for row in p]
    weights = [images * weight / sum(weights) for weight in weights]
    confusion = 0.0
    for j in range(classes):
        row = [sum(weights[n] * p[n][j] * p[n][k] for n in range(images)) for k in range(classes)]
        confusion += sum(row[k] for k in range(classes) if k != j) / sum(row)
    return confusion / classes


def masked_consistency(student: Tensor, teacher: Tensor) -> float:
    """MIC, Eq. 6 to 8: the teacher's label, weighted by its confidence in it."""
    total = 0.0
    for seen, whole in zip(student.detach(), teacher.detach(), strict=True):
        confidence = [math.exp(float(value)) for value in log_softmax(whole)]
        label = confidence.index(max(confidence))
        total -= confidence[label] * float(log_softmax(seen)[label])
    return total / len(student)


def masked(images: Tensor, seen: Tensor) -> Tensor:
    """Squares of each image set to 0 where ``seen`` (images x squares x squares) is false, pixel by pixel."""
    hidden, (height, width), squares = images.clone(), images.shape[-2:], seen.shape[-1]
    for n in range(len(images)):
        for y in range(height):
            for x in range(width):
                if not seen[n, y * squares // height, x * squares // width]:
                    hidden[n, :, y, x] = 0
    return hidden


def multi_sample_contrastive(f_s: Tensor, f_t: Tensor, labels_s: Sequence[int], neighbours: int, kept: float) -> float:
    """L_msc of ILA-DA: targets are labelled by a vote of their nearest sources, and the surest of them are kept."""
    phi = [[1 / (1 + math.dist(s, t)) for t in f_t.tolist()] for s in f_s.tolist()]
    labels_t, ratios = [], []
    for t in range(len(f_t)):
        nearest = sorted(range(len(f_s)), key=lambda s: -phi[s][t])[:neighbours]
        votes = [labels_s[s] for s in nearest]
        best = max(
            set(votes),
            key=lambda c: (votes.count(c), sum(phi[s][t] for s in nearest if labels_s[s] == c)),
        )
        same = sorted((phi[s][t] for s in range(len(f_s)) if labels_s[s] == best), reverse=True)
        other = sorted((phi[s][t] for s in range(len(f_s)) if labels_s[s] != best), reverse=True)
        labels_t.append(best)
        ratios.append(sum(same[:neighbours]) / sum(other[:neighbours]))
    trusted = sorted(range(len(f_t)), key=lambda t: -ratios[t])[: max(1, round(kept * len(f_t)))]
    losses = []
    for s in range(len(f_s)):
        positive = [math.exp(phi[s][t]) for t in trusted if labels_t[t] == labels_s[s]]
        everything = [math.exp(phi[s][t]) for t in trusted]
        if 0 < len(positive) < len(everything):
            losses.append(-math.log(sum(positive) / sum(everything)))
    return sum(losses) / max(1, len(losses))
