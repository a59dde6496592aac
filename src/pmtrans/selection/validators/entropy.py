"""Entropy of target predictions (Morerio et al., Minimal-Entropy Correlation Alignment, ICLR 2018, Sec. 3).

A confident model is preferred. It rewards collapse too (one class for all images is perfectly confident).
"""

from __future__ import annotations

from pmtrans.selection.evidence import CHUNK, Evidence, log_probabilities, shannon


def entropy(evidence: Evidence, *, chunk: int = CHUNK) -> float:
    """-mean_i H(p_i), in nats, in [-log K, 0]; higher (more confident) is better."""
    logits_MK = evidence.target_logits_MK
    total = sum(shannon(log_p.exp()).sum().item() for log_p in log_probabilities(logits_MK, chunk))
    return -total / len(logits_MK)
