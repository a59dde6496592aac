"""Class-class correlation of the target predictions (Tu et al., What Does Softmax Probability Tell Us
about Classifiers Ranking Across Diverse Test Conditions?, TMLR 2024, Sec. 4: SoftmaxCorr, uniform reference).
"""

from __future__ import annotations

import math

from pmtrans.selection.evidence import CHUNK, Evidence
from pmtrans.selection.validators.bnm import prediction_gram


def softmax_correlation(evidence: Evidence, *, chunk: int = CHUNK) -> float:
    """cos(P^T P / M, I), in [0, 1]; higher (no two classes confused, all of them used) is better."""
    gram_KK = prediction_gram(evidence.target_logits_MK, chunk)
    return float(gram_KK.trace() / gram_KK.square().sum().sqrt() / math.sqrt(evidence.classes))
