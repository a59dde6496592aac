"""Which trainings fit into the time, and with how many steps: worked out from a few real steps of each."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pmtrans.bench.entry import Entry
from pmtrans.config import Config
from pmtrans.data.domains import Data
from pmtrans.progress import Reporter
from pmtrans.training.dry_run.rehearsal import Rehearsal, pass_seconds, rehearse

SOURCE = Entry("source_only")  # the stage that all others start from, and the first to be shipped
ENTRIES = (  # in this order, as far as the time goes
    Entry("pmtrans", "best"),
    Entry("mcc"),
    Entry("pmtrans", "paper"),
    Entry("bnm"),
    Entry("shot"),
    Entry("cdtrans"),
    Entry("pmtrans", "best", ("mcc=1",)),
    Entry("ssrt"),
    Entry("cdan"),
)
FEWEST_STEPS = 40  # of a training that deserves the name, where its own settings ask for more
COMFORTABLE = 0.8  # share of the time that source stage and PMTrans may take at their full length
SHORTENED = 0.7  # the share that they get where they must be shortened, so that others fit as well
ALONE = 0.85  # the share of a source stage that nothing can follow
EVALUATIONS = 4  # of a shortened training


@dataclass(frozen=True)
class Cost:
    """Seconds of a step, of an evaluation, and of what comes before the first step, as a rehearsal measures them."""

    step: float
    evaluation: float
    start: float = 0.0

    def of(self, length: Length) -> float:
        return self.start + length.steps * self.step + length.evaluations * self.evaluation

    def times(self, factor: float) -> Cost:
        return Cost(factor * self.step, factor * self.evaluation, factor * self.start)


@dataclass(frozen=True)
class Length:
    """How long a training is: steps, and how many of them lie between two evaluations."""

    steps: int
    evaluate_every: int

    @property
    def evaluations(self) -> int:
        return -(-self.steps // self.evaluate_every)

    def shortened(self, steps: int) -> Length:
        """The same training with fewer steps, and then with few evaluations."""
        steps = max(1, min(steps, self.steps))
        return self if steps == self.steps else Length(steps, max(-(-steps // EVALUATIONS), 1))

    @property
    def fewest(self) -> int:
        return min(self.steps, FEWEST_STEPS)


def measure(config: Config, data: Data, reporter: Reporter, patience: float) -> tuple[Cost, Length]:
    """A few real steps on real images: at least one on the clock, and more while ``patience`` seconds last."""
    with tempfile.TemporaryDirectory() as scratch:
        loop = rehearse(config, data, Path(scratch), reporter)
        length = Length(loop.steps, config.train.evaluate_every or loop.epoch)
        evaluation, probe, second_view = pass_seconds(loop)
        step = _step_seconds(loop, patience)
        if config.method["name"] == SOURCE.method:
            return Cost(step, evaluation, start=probe), length
        # its pseudo labels need a pass as well; the probe is taken over
        return Cost(step, 2 * evaluation, start=second_view), length


def _step_seconds(loop: Rehearsal, patience: float) -> float:
    """The mean over the parts of a run; the first step, which allocates, is not counted."""
    loop.passes.target()
    batches, moments = loop.batches(), loop.moments()
    begin = time.monotonic()
    loop.step_at(moments[-1], next(batches))
    taken: list[float] = []
    for step in moments:
        if taken and time.monotonic() - begin > patience:
            break
        start = time.monotonic()
        loop.step_at(step, next(batches))
        taken.append(time.monotonic() - start)
    return sum(taken) / len(taken)


def longest(length: Length, seconds: float, *costs: Cost) -> Length | None:
    """The longest form of a training with which one run at each of ``costs`` takes ``seconds``; None: too short."""

    def total(steps: int) -> float:
        return sum(cost.of(length.shortened(steps)) for cost in costs)

    if total(length.steps) <= seconds:
        return length
    low, high = 0, length.steps  # low fits, high does not; a shortened form has fewer evaluations, so ask it afresh
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if total(middle) <= seconds else (low, middle)
    return length.shortened(low) if low >= length.fewest else None


def plan_length(length: Length, seconds: float, source: Cost, method: Cost) -> tuple[Length | None, bool]:
    """(the length of all trainings, whether methods fit at all); (None, False): not even a source stage fits."""
    if source.of(length) + method.of(length) <= COMFORTABLE * seconds:
        return length, True
    both = longest(length, SHORTENED * seconds, source, method)
    if both is not None:
        return both, True
    return longest(length, ALONE * seconds, source), False
