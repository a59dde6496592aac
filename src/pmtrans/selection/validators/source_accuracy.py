"""Accuracy on the held-out part of the source: the only validator that sees labels, and the gate of the rule.

It cannot see the target. A model that lost the source, however, has lost the meaning of its classes.
"""

from __future__ import annotations

from pmtrans.selection.evidence import Evidence


def source_accuracy(evidence: Evidence) -> float:
    """Share of held-out source images predicted right, in [0, 1]; higher is better."""
    return (evidence.source_predictions_N() == evidence.source_labels_N).double().mean().item()
