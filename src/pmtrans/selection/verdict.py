"""Did adaptation help, do nothing, or hurt? Negative transfer, detected without a target label, with an error rate.

The expected change of target accuracy (``assessment.py``) has an error whose size is known from tasks that were left
out. Taking it for normally distributed gives a probability to each answer:

    helped: the change is above ``NOTABLE``; hurt: below -``NOTABLE``; unchanged: between the two.

The most probable answer is the verdict if it is, corrected by how often such verdicts were right on tasks left out, at
least as probable as ``SURE`` and, for ``helped`` and ``hurt``, the opposite is not more probable than ``OPPOSITE``.
Otherwise, and below ``LEAST_IMAGES`` target images, nobody can tell. Nor is ``helped`` said of a model that forgot the
source, or in which classes died out: a good adaptation may do so, but so does one that spreads wrong labels over whole
clusters, and arbitration, which reads clusters, cannot tell the two apart.

What does not decide, because adaptation itself moves it: the adapted model's confidence and all that is made
of it (entropy, ATC, nuclear norm).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

from pmtrans.outcomes import Answer
from pmtrans.selection.assessment import COLLAPSED, Change
from pmtrans.selection.signals import PairSignals

NOTABLE = 0.02  # of target accuracy: below it nobody would notice
SURE = 0.6  # of a verdict, after the correction
MOST_RELIABLE = 0.97  # no kind of verdict was given often enough on tasks left out to promise more
OPPOSITE = 0.05
LEAST_IMAGES = 150  # of the target
SOURCE_DROP = 0.05  # of hold-out accuracy, from which a gain is not believed
DIED_OUT = 0.05  # of the target images, in classes that died out: neither is it then


@dataclass(frozen=True)
class Verdict:
    """``name`` in a word or two, ``reason`` in one line; ``gain`` is the expected change of target accuracy.

    ``probability``: that the verdict is right, corrected by how often verdicts of this name were right on tasks that
    were left out; of ``cannot tell``, that of the most probable answer.
    """

    name: Answer
    probability: float
    reason: str
    gain: float


def answer_probabilities(change: Change) -> dict[Answer, float]:
    """Of helped, unchanged and hurt; they sum to one."""
    normal = NormalDist(change.gain, max(change.deviation, 1e-9))
    below, above = normal.cdf(-NOTABLE), 1 - normal.cdf(NOTABLE)
    return {"helped": above, "unchanged": 1 - above - below, "hurt": below}


def verdict(
    change: Change, pair: PairSignals, lead: float = 0.0, reliability: Mapping[str, float] | None = None
) -> Verdict:
    """``lead``: how far the model to beat is ahead of the earlier one of ``pair``, where it is another one."""
    probabilities = answer_probabilities(change)
    name = max(probabilities, key=lambda answer: probabilities[answer])
    probability = probabilities[name]
    opposite = {"helped": "hurt", "hurt": "helped"}.get(name)
    told = _told(pair, lead)
    if pair.images < LEAST_IMAGES:
        reason = f"{pair.images} target images are too few, {LEAST_IMAGES} are needed; {told}."
        return Verdict("cannot tell", probability, reason, change.gain)
    if name == "helped" and pair.source_drop > SOURCE_DROP:
        reason = f"A gain is not certain in a model that has forgotten the source: {told}."
        return Verdict("cannot tell", probability, reason, change.gain)
    if name == "helped" and pair.dead >= DIED_OUT:
        reason = f"A gain is not certain where classes that held {pair.dead:.0%} of the target images died out: {told}."
        return Verdict("cannot tell", probability, reason, change.gain)
    corrected = probability * (min(reliability.get(name, 1.0), MOST_RELIABLE) if reliability else 1.0)
    if corrected < SURE or (opposite is not None and probabilities[opposite] > OPPOSITE):  # type: ignore[index]
        reason = f"A change of {100 * change.gain:+.1f} points is expected, give or take {100 * change.deviation:.1f}"
        return Verdict("cannot tell", probability, f"{reason}: {told}.", change.gain)
    expected = f"about {100 * change.gain:+.1f} points are expected, and the verdict is right in {corrected:.0%}"
    reason = f"{_cause(name, pair)}: {told}; {expected} of such cases."
    return Verdict(name, corrected, reason, change.gain)


def _cause(name: Answer, pair: PairSignals) -> str:
    if name == "hurt" and pair.dead >= COLLAPSED:
        return f"Adaptation collapsed, classes that held {pair.dead:.0%} of the target images died out"
    if name == "unchanged":
        return "No difference worth mentioning"
    return f"Neighbours side with the {'adapted model' if name == 'helped' else 'model before adaptation'}"


def _told(pair: PairSignals, lead: float) -> str:
    told = f"{pair.better} images changed for the better, {pair.worse} for the worse"
    if lead:
        told += (
            f"; the linear probe is {100 * lead:.1f} points ahead of the model before adaptation, which are taken off"
        )
    if pair.source_drop > SOURCE_DROP:
        told += f", and {100 * pair.source_drop:.1f} points of accuracy on the source were lost"
    return told
