"""The default rule: which evaluation of a run to keep, from label-free scores alone.

1. Harm guard, where ``arbitration`` is in the scores: the estimated change of target accuracy since before
   adaptation must be within ``gain_tolerance`` of the best of the run. It is a guard and no rank, as
   it knows a bad model from a good one better than a good one from a slightly better one. It comes first:
   early evaluations, before harm was done, may still be short of the source accuracy of later ones.
2. Gate: held-out source accuracy must be within ``tolerance`` of the best among the rest.
3. Collapse guard: the mean prediction must spread over at least a third as many classes (in effect) as at its
   widest among the rest. Confidence-loving validators would otherwise choose a collapsed model.
4. Among those left, each validator ranks the evaluations; the best mean rank wins. Ranks, not scores, since
   the scores have no common scale. Ties go to the later evaluation, which has seen more data.

Guards and ranks compare with the whole run, whatever is still kept of it: a run whose scores fall a little at
every evaluation is far from its best in the end, though near to the ones just before.

IM and BNM reward confident and diverse predictions, ClassAMI agreement with the features' own clusters: two
kinds of evidence, neither of which decides alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from pmtrans.errors import UserError

RANKED = ("information_maximisation", "bnm", "class_ami")
TOLERANCE = 0.03  # of held-out source accuracy: a few images of a small hold-out
NARROWEST = 1 / 3
GAIN_TOLERANCE = 0.02  # of target accuracy: the error of arbitration between two good models

Scores = Mapping[str, float]


@dataclass(frozen=True)
class Choice:
    """The evaluation to keep, by its place in the history, and why, in one line."""

    index: int
    explanation: str
    admitted: tuple[int, ...]  # those that passed the gate and both guards
    mean_ranks: dict[int, float]  # of the admitted; 1 is best
    order: tuple[int, ...]  # all evaluations, the most preferred first: no refused one comes before an admitted one


@dataclass(frozen=True)
class Disagreement:
    """How far validators differ: the choice of each, and how often two order two evaluations oppositely."""

    choices: dict[str, int]
    spread: int  # evaluations between the earliest and the latest choice
    discordance: float  # in [0, 1]: 0 all validators agree on the order, 0.5 as by chance


def choose(
    history: Sequence[Scores],
    *,
    validators: Sequence[str] = RANKED,
    tolerance: float = TOLERANCE,
    gain_tolerance: float = GAIN_TOLERANCE,
    available: Collection[int] | None = None,
) -> Choice:
    """Pick one evaluation of a run; ``history`` holds the scores of each, in the order of training.

    ``available``: those that can still be chosen; by default all.
    """
    if not history:
        raise UserError("There is no evaluation to choose from: let the run evaluate at least once.")
    unharmed = _near_best(history, "arbitration", range(len(history)), gain_tolerance)
    gated = _near_best(history, "source_accuracy", unharmed, tolerance)
    widest = max(filter(math.isfinite, (_effective_classes(history[index]) for index in gated)), default=0.0)
    admitted = [index for index in gated if _effective_classes(history[index]) >= NARROWEST * widest]

    used = [name for name in validators if all(name in scores for scores in history)]
    ranks = [rankdata([-_value(history[index], name) for index in admitted]) for name in used]
    means: NDArray[np.float64] = np.mean(ranks, axis=0) if ranks else np.zeros(len(admitted))
    mean_ranks = {index: float(mean) for index, mean in zip(admitted, means, strict=True)}

    order = (
        *sorted(admitted, key=lambda one: (round(mean_ranks[one], 9), -one)),
        *_best_first(gated, admitted, lambda one: _effective_classes(history[one])),
        *_best_first(unharmed, gated, lambda one: _value(history[one], "source_accuracy")),
        *_best_first(range(len(history)), unharmed, lambda one: _value(history[one], "arbitration")),
    )
    index = next(one for one in order if available is None or one in available)

    if index not in mean_ranks:
        by = "none that passes every guard is kept, and this one comes nearest"
    else:
        by = f"best mean rank ({mean_ranks[index]:.1f}) by {', '.join(used)}" if used else "the last one admitted"
        by += "" if index == order[0] else " of those kept"
    explanation = (
        f"Evaluation {index + 1} of {len(history)}: {by}; refused: {len(history) - len(unharmed)} for harm, "
        f"{len(unharmed) - len(gated)} for lost source accuracy, {len(gated) - len(admitted)} for collapse."
    )
    return Choice(index, explanation, tuple(admitted), mean_ranks, order)


def disagreement(history: Sequence[Scores], *, validators: Sequence[str] | None = None) -> Disagreement:
    """Compare what each validator alone would choose; by default all that every evaluation has."""
    if not history:
        raise UserError("There is no evaluation to compare: let the run evaluate at least once.")
    wanted = validators if validators is not None else list(history[0])
    names = [name for name in wanted if all(name in scores for scores in history)]
    values = {name: np.array([_value(scores, name) for scores in history]) for name in names}
    last = len(history) - 1
    choices = {name: last - int(np.argmax(column[::-1])) for name, column in values.items()}

    pairs = list(combinations(range(len(history)), 2))
    opposite = [
        np.sign(values[a][i] - values[a][j]) * np.sign(values[b][i] - values[b][j]) < 0
        for a, b in combinations(names, 2)
        for i, j in pairs
    ]
    spread = max(choices.values()) - min(choices.values()) if choices else 0
    return Disagreement(choices, spread, float(np.mean(opposite)) if opposite else 0.0)


def _near_best(history: Sequence[Scores], name: str, candidates: Sequence[int], tolerance: float) -> list[int]:
    """The candidates whose score is within tolerance of their best; all of them where none has the score."""
    best = max(_value(history[index], name) for index in candidates)
    if best == -math.inf:
        return list(candidates)
    return [index for index in candidates if _value(history[index], name) >= best - tolerance]


def _best_first(those: Sequence[int], but: Sequence[int], score: Callable[[int], float]) -> list[int]:
    """``those`` without ``but``, the highest score first, ties to the later."""
    return sorted(set(those) - set(but), key=lambda one: (score(one), one), reverse=True)


def _value(scores: Scores, name: str) -> float:
    """A score, or minus infinity where it is missing or not a number: never to be preferred."""
    value = scores.get(name, math.nan)
    return -math.inf if math.isnan(value) else value


def _effective_classes(scores: Scores) -> float:
    """exp H(mean p), infinite where unknown: H(mean p) is what IM adds to negative entropy."""
    diversity = scores.get("information_maximisation", math.nan) - scores.get("entropy", math.nan)
    return math.inf if math.isnan(diversity) else math.exp(diversity)
