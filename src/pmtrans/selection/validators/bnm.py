"""Nuclear norm of the target predictions (Cui et al., Towards Discriminability and Diversity:
Batch Nuclear-norm Maximization under Label Insufficient Situations, CVPR 2020, Eq. 8).

The norm is divided by its largest possible value, sqrt(M min(M, K)), so that domains of different
sizes can be compared (Deng et al., Confidence and Dispersity Speak, ICML 2023, Eq. 3).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pmtrans.selection.evidence import CHUNK, MANY_CLASSES, Evidence, even_sample, log_probabilities


def nuclear_norm(gram_KK: Tensor, rows: int) -> float:
    """The scaled nuclear norm of an M x K matrix P (M rows) from P^T P, in [0, 1]."""
    singular_values: Tensor = torch.linalg.eigvalsh(gram_KK).clamp_min(0).sqrt()
    return float(singular_values.sum()) / math.sqrt(rows * min(rows, len(gram_KK)))


def prediction_gram(logits_MK: Tensor, chunk: int = CHUNK) -> Tensor:
    """P^T P of the predictions: all that is needed of P, and only K x K.

    With more than ``MANY_CLASSES`` it is P P^T, which has the same trace, norm and singular values, of a sample.
    """
    if logits_MK.shape[1] > MANY_CLASSES:
        p = logits_MK[even_sample(*logits_MK.shape)].double().softmax(1)
        return p @ p.T
    gram_KK = torch.zeros(logits_MK.shape[1], logits_MK.shape[1], dtype=torch.float64)
    for log_p in log_probabilities(logits_MK, chunk):
        p = log_p.exp()
        gram_KK += p.T @ p
    return gram_KK


def bnm(evidence: Evidence, *, chunk: int = CHUNK) -> float:
    """||P||_* / sqrt(M min(M, K)), in [0, 1]; higher (confident and diverse) is better."""
    gram = prediction_gram(evidence.target_logits_MK, chunk)
    return nuclear_norm(gram, len(gram) if evidence.classes > MANY_CLASSES else len(evidence.target_logits_MK))
