"""Did adaptation help, do nothing, or hurt? Negative transfer, detected without a target label.

What decides, in this order:
1. collapse: classes that held a fifth of the target images have died out;
2. the source: its hold-out accuracy fell by more than chance and nothing was won on the target for it;
3. arbitration of the images on which baseline and adapted model disagree (``arbitration.py``).

What does not decide, because adaptation itself moves it: the adapted model's confidence and all that is made
of it (entropy, ATC, nuclear norm), and reverse validation, which rises when labels are spread wrongly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scipy.stats import binomtest

from pmtrans.selection.arbitration import Arbitration, arbitrate
from pmtrans.selection.collapse import share_of_dying
from pmtrans.selection.evidence import Evidence

COLLAPSED = 0.2  # of the target images, in classes that died out
SOURCE_DROP = 0.05  # of hold-out accuracy
LEAST_GAIN = 0.01  # of target accuracy: below it nobody would notice
SIGNIFICANCE = 0.05


@dataclass(frozen=True)
class Verdict:
    """``name`` in one word, ``reason`` in one line; ``gain`` is the estimated change of target accuracy."""

    name: Literal["helped", "unchanged", "hurt"]
    reason: str
    gain: float


def verdict(baseline: Evidence, adapted: Evidence, judged: Arbitration | None = None, lead: float = 0.0) -> Verdict:
    """Compare the adapted model with an earlier one on the same held-out source and target images.

    ``judged``: their arbitration, by default on the features of ``baseline``. ``lead``: how far the model to beat is
    ahead of ``baseline``, where it is another one.
    """
    judged = judged or arbitrate(baseline, adapted)
    gain = judged.gain - lead

    dead = share_of_dying(adapted.target_logits_MK, baseline.target_logits_MK)
    if dead >= COLLAPSED:
        return Verdict(
            "hurt", f"Adaptation collapsed: classes that held {dead:.0%} of the target images died out.", gain
        )

    drop, drop_p_value = _source_drop(baseline, adapted)
    lost_source = drop > SOURCE_DROP and drop_p_value < SIGNIFICANCE
    certain = judged.p_value < SIGNIFICANCE and abs(gain) >= LEAST_GAIN
    if lost_source and not (certain and gain > drop):
        return Verdict(
            "hurt",
            f"Accuracy on the held-out source fell by {100 * drop:.1f} points, and the target shows no gain "
            f"that outweighs it ({_told(judged, lead)}).",
            gain,
        )
    if certain:
        side = "the adapted model" if gain > 0 else "the model before adaptation"
        return Verdict("helped" if gain > 0 else "hurt", f"Neighbours side with {side}: {_told(judged, lead)}.", gain)
    return Verdict("unchanged", f"No difference beyond chance: {_told(judged, lead)}.", gain)


def _told(judged: Arbitration, lead: float) -> str:
    told = (
        f"{judged.for_adapted} images changed for the better, {judged.for_baseline} for the worse, "
        f"about {100 * judged.gain:+.1f} points"
    )
    return f"{told}, of which the linear probe has {100 * lead:+.1f} already" if lead else told


def _source_drop(baseline: Evidence, adapted: Evidence) -> tuple[float, float]:
    """The fall in hold-out accuracy and its p-value (McNemar's exact test: the images are the same)."""
    right_before = baseline.source_predictions_N() == baseline.source_labels_N
    right_now = adapted.source_predictions_N() == adapted.source_labels_N
    lost, won = int((right_before & ~right_now).sum()), int((~right_before & right_now).sum())
    p_value = float(binomtest(lost, lost + won, alternative="greater").pvalue) if lost + won else 1.0
    return (lost - won) / len(right_now), p_value
