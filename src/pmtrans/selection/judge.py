"""The judge of a training: scores each evaluation without target labels, keeps candidates, and chooses one.

Which candidates are kept is a function of the scores so far, so a run that is resumed keeps the same ones.
The judge's memory has its own type, with no place for anything but validators' scores: what an oracle logs beside
them cannot get in.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from pmtrans.errors import RunError, one_line
from pmtrans.files import checksum, new_folder, regular
from pmtrans.selection.collapse import collapse_signs, without_classes
from pmtrans.selection.evidence import Evidence, judged_rows, read_evidence, write_evidence
from pmtrans.selection.rule import Choice, choose
from pmtrans.selection.validators import score_all, score_names

PREFIX = "score."
EVIDENCE = "evidence.safetensors"  # of a candidate, as of a finished stage
WEIGHTS = "weights.safetensors"
Rule = Callable[..., Choice]  # ``choose``, or the same with other tolerances


@dataclass(frozen=True)
class Judged:
    """An evaluation as the judge remembers it. Scores are those of label-free validators; another name is refused."""

    step: int
    scores: Mapping[str, float]
    checksum: str | None = None  # of weights and evidence, where they were kept

    def __post_init__(self) -> None:
        if strangers := sorted(self.scores.keys() - score_names()):
            raise ValueError(f"{', '.join(strangers)}: not a score of a validator, so the judge must not see it")


class Outputs(Protocol):
    """Features and logits of some images."""

    @property
    def features_MF(self) -> Tensor: ...
    @property
    def logits_MK(self) -> Tensor: ...


class Evaluated(Protocol):
    """What the judge reads of an evaluation."""

    @property
    def step(self) -> int: ...
    @property
    def target(self) -> Outputs: ...
    @property
    def holdout(self) -> Outputs | None: ...
    @property
    def source_sample(self) -> Outputs | None: ...
    @property
    def ground(self) -> tuple[Tensor, Tensor] | None: ...


@dataclass
class Judge:
    """An observer of the loop. ``weights`` gives the model's present weights; ``warn`` is told of a collapse."""

    folder: Path  # of candidates
    holdout_labels: tuple[int, ...]
    classes: tuple[str, ...]
    weights: Callable[[], dict[str, Tensor]]
    warn: Callable[[str], None]
    baseline: Evidence | None
    keep: int
    history: list[Judged]  # the evaluations so far; the judge adds to it, a checkpoint saves it
    absent_K: Tensor | None = None  # classes that the target is taken not to have
    rule: Rule = choose
    _kept: tuple[int, ...] = field(init=False)  # places in the history

    def __post_init__(self) -> None:
        self._kept = replay(self.history, self.keep, self.rule)

    def __call__(self, evaluation: Evaluated) -> dict[str, Any]:
        """Scores for the log, ``score.NAME``; a collapse is said at once, and logged under ``warnings``."""
        evidence = evidence_of(evaluation, self.holdout_labels)
        known = None if self.baseline is None else self.baseline.without_source_of(self.absent_K)
        scores = score_all(evidence.without_source_of(self.absent_K), known)
        before = None
        if self.baseline is not None:
            before = without_classes(self.baseline.sampled().target_logits_MK, self.absent_K).softmax(1)
        signs = collapse_signs(evidence.sampled().target_logits_MK.softmax(1), before, classes=self.classes)
        for sign in signs:
            self.warn(f"step {evaluation.step}: {one_line(sign)}")
        self.offer(Judged(evaluation.step, scores), evidence)
        named = {PREFIX + name: value for name, value in scores.items()}
        return {**named, "warnings": signs} if signs else named

    def offer(self, newcomer: Judged, evidence: Evidence) -> None:
        """Remember the scores; keep the weights if they are among the best so far, and drop those that fall out.

        The checksum of what was kept goes into every later checkpoint: what is selected is what was judged.
        """
        self.history.append(newcomer)
        self._kept = keep_best(self.history, self._kept, self.keep, self.rule)
        kept = {self.history[place].step for place in self._kept}
        if newcomer.step in kept:
            with new_folder(self.candidate(newcomer.step)) as temporary:
                weights = {name: value.detach().cpu().contiguous() for name, value in self.weights().items()}
                safetensors.torch.save_file(weights, temporary / WEIGHTS)
                write_evidence(temporary / EVIDENCE, evidence)
                found = checksum(temporary / WEIGHTS, temporary / EVIDENCE)
            self.history[-1] = replace(newcomer, checksum=found)
        for path in self.folder.glob("step-*"):
            if path.name not in {self.candidate(step).name for step in kept}:
                shutil.rmtree(path, ignore_errors=True)

    def candidate(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def select(self) -> tuple[int, str, dict[str, Tensor], Evidence]:
        """(step, explanation, weights, evidence) of the evaluation that the rule prefers among those kept."""
        choice = self.rule([judged.scores for judged in self.history], available=self._kept)
        step = self.history[choice.index].step
        folder = self.candidate(step)
        try:
            if checksum(folder / WEIGHTS, folder / EVIDENCE) != self.history[choice.index].checksum:
                raise ValueError("its checksum does not match")
            weights = safetensors.torch.load_file(regular(folder / WEIGHTS))
            return step, choice.explanation, weights, read_evidence(folder / EVIDENCE)
        except (OSError, SafetensorError, ValueError, TypeError) as error:
            reason = error if isinstance(error, ValueError) else type(error).__name__
            raise RunError(
                f"The selected model {one_line(folder)!r} cannot be used ({one_line(reason, 100)}): it was removed or "
                "changed; train again with --overwrite."
            ) from None


def evidence_of(evaluation: Evaluated, holdout_labels: Sequence[int]) -> Evidence:
    """What an evaluation shows of a model, on the CPU and in float32."""
    assert evaluation.holdout is not None, "evidence needs a held-out part of the source"
    sample, ground = evaluation.source_sample, evaluation.ground
    return Evidence(
        source_features_ND=evaluation.holdout.features_MF.float().cpu(),
        source_logits_NK=evaluation.holdout.logits_MK.float().cpu(),
        source_labels_N=torch.tensor(holdout_labels),
        target_features_MD=judged_rows(evaluation.target.features_MF),
        target_logits_MK=judged_rows(evaluation.target.logits_MK),
        source_train_features_PD=None if sample is None else sample.features_MF.float().cpu(),
        source_ground_NG=None if ground is None else ground[0].float().cpu(),
        target_ground_MG=None if ground is None else judged_rows(ground[1]),
    )


def keep_best(history: Sequence[Judged], kept: Collection[int], keep: int, rule: Rule = choose) -> tuple[int, ...]:
    """Of the places ``kept`` so far and the newest, the ``keep`` that the rule on the whole history prefers."""
    preferred = rule([judged.scores for judged in history]).order
    return tuple([place for place in preferred if place in kept or place == len(history) - 1][:keep])


def replay(history: Sequence[Judged], keep: int, rule: Rule = choose) -> tuple[int, ...]:
    """What is kept after the last evaluation: as if each had been offered in its turn."""
    kept: tuple[int, ...] = ()
    for count in range(1, len(history) + 1):
        kept = keep_best(history[:count], kept, keep, rule)
    return kept
