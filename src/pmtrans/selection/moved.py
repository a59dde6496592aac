"""Did a model gain by moving to a new place? Judged without target labels and without a source image.

The estimates and error rates of ``verdict.py`` rest on a held-out part of the source and on the features of the
untrained backbone. A model folder has neither. There is arbitration on the features of either model, which sides with
its own, and one certain bound: accuracy changes at most by the share of images on which the two differ. So only what
both arbitrations say is said, and it carries no probability:

    unchanged    the two differ on less than ``NOTABLE`` of the images: certain
    hurt         classes died out, or both arbitrations side with the given model
    helped       both side with the moved model, which still calls the anchors as the given one did
    cannot tell  everything else, and fewer than ``LEAST_IMAGES`` images

An arbitration sides with a model if a sign test at ``LEVEL`` does not ascribe its votes to chance. Which model is
shipped has to be decided even so: the one that the mean of both prefers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from scipy.stats import binomtest

from pmtrans.outcomes import Answer
from pmtrans.selection.assessment import COLLAPSED
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.rule import choose
from pmtrans.selection.signals import PairSignals, read_pair
from pmtrans.selection.verdict import LEAST_IMAGES, NOTABLE

LEVEL = 0.01
FORGOTTEN = 0.1  # of the anchors, whose labels are those of the given model: up to a tenth of them may be wrong
HARM = 0.15  # of arbitration on the features of the given model, which sides with it

# the rule with tolerances for anchors in place of a labelled hold-out; chosen with target labels of one task in view
choose_moved = partial(choose, tolerance=FORGOTTEN, gain_tolerance=HARM)


@dataclass(frozen=True)
class MovedSignals:
    """The given and the moved model on the features of the one and of the other."""

    on_given: PairSignals
    on_moved: PairSignals

    @property
    def gain(self) -> float:
        """The mean of both arbitrations."""
        return (self.on_given.gain + self.on_moved.gain) / 2


def read_moved(given: Evidence, moved: Evidence) -> MovedSignals:
    """``source_drop`` of either is what of the anchors was lost."""
    return MovedSignals(read_pair(given, moved), read_pair(given.on_features_of(moved), moved))


def judge_moved(signals: MovedSignals) -> tuple[Answer, str]:
    """(answer, reason in one line)."""
    pair, other = signals.on_given, signals.on_moved
    told = (
        f"neighbours find {pair.better} images changed for the better and {pair.worse} for the worse by the features "
        f"of the given model, {other.better} and {other.worse} by those of the moved one"
    )
    if pair.images < LEAST_IMAGES:
        return "cannot tell", f"{pair.images} target images are too few, {LEAST_IMAGES} are needed; {told}."
    if pair.disputed < NOTABLE:
        return "unchanged", f"The given and the moved model differ on {pair.disputed:.1%} of the images only."
    if pair.dead >= COLLAPSED:
        return "hurt", f"Classes that held {pair.dead:.0%} of the target images died out: {told}."
    sides = {_side(pair), _side(other)}
    if sides == {-1}:
        return "hurt", f"Neighbours side with the given model: {told}."
    if sides != {1}:
        return "cannot tell", f"Without source images this cannot be judged: {told}."
    if pair.source_drop > FORGOTTEN:
        lost = f"{pair.source_drop:.0%} of the images that the given model was surest of are called differently now"
        return "cannot tell", f"A gain is not certain, as {lost}; {told}."
    return "helped", f"Neighbours side with the moved model: {told}."


def _side(pair: PairSignals) -> int:
    """1: with the moved model, -1: with the given one, 0: with neither."""
    votes = pair.better + pair.worse
    if abs(pair.gain) <= NOTABLE or not votes or binomtest(pair.better, votes).pvalue > LEVEL:
        return 0
    return 1 if pair.gain > 0 else -1
