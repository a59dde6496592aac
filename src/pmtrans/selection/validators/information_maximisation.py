"""Mutual information of image and predicted class: confident on each image, diverse over all.

Bridle et al. (NIPS 1991); as a validator: Musgrave et al., Three New Validators and a Large-Scale
Benchmark Ranking for Unsupervised Domain Adaptation (2022), where it is called IM.
"""

from __future__ import annotations

from pmtrans.selection.evidence import CHUNK, Evidence, mean_probabilities, shannon
from pmtrans.selection.validators.entropy import entropy


def information_maximisation(evidence: Evidence, *, chunk: int = CHUNK) -> float:
    """H(mean_i p_i) - mean_i H(p_i), in nats, in [0, log K]; higher is better."""
    diversity = shannon(mean_probabilities(evidence.target_logits_MK, chunk)).item()
    return diversity + entropy(evidence, chunk=chunk)
