"""The judge of a training: scores each evaluation without target labels, keeps candidates, and chooses one.

Which candidates are kept is a function of the scores so far, so a run that is continued keeps the same ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from pmtrans.errors import RunError, one_line
from pmtrans.files import checksum, new_folder
from pmtrans.selection.collapse import collapse_signs
from pmtrans.selection.evidence import Evidence, read_evidence, write_evidence
from pmtrans.selection.rule import choose
from pmtrans.selection.validators import score_all

PREFIX = "score."
EVIDENCE = "evidence.safetensors"  # of a candidate, as of a finished stage
WEIGHTS = "weights.safetensors"
CANDIDATE = "candidate"  # in an evaluation: the checksum of the weights and evidence that were kept of it


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
    history: list[dict[str, Any]]  # scores with their step: the evaluations so far, which the loop adds to

    def __call__(self, evaluation: Evaluated) -> dict[str, Any]:
        """Scores for the log, ``score.NAME``; a collapse is said at once, and logged under ``warnings``."""
        evidence = evidence_of(evaluation, self.holdout_labels)
        scores = score_all(evidence, self.baseline)
        before = self.baseline.sampled().target_logits_MK.softmax(1) if self.baseline is not None else None
        signs = collapse_signs(evidence.sampled().target_logits_MK.softmax(1), before, classes=self.classes)
        for sign in signs:
            self.warn(f"step {evaluation.step}: {one_line(sign)}")
        named = {PREFIX + name: value for name, value in scores.items()}
        kept = self._offer({"step": evaluation.step, **named}, evidence)
        return {**named, **({"warnings": signs} if signs else {}), **({CANDIDATE: kept} if kept else {})}

    def _offer(self, entry: dict[str, Any], evidence: Evidence) -> str | None:
        """Keep the newcomer's weights if it is among the best so far; forget the one that falls out.

        The checksum of what was kept goes into the log and every later checkpoint: what is selected is what was judged.
        """
        kept, checksum_of_kept = kept_steps([*self.history, entry], self.keep), None
        if entry["step"] in kept:
            with new_folder(self.candidate(entry["step"])) as temporary:
                weights = {name: value.detach().cpu().contiguous() for name, value in self.weights().items()}
                safetensors.torch.save_file(weights, temporary / WEIGHTS)
                write_evidence(temporary / EVIDENCE, evidence)
                checksum_of_kept = checksum(temporary / WEIGHTS, temporary / EVIDENCE)
        for path in self.folder.glob("step-*"):
            if path.name not in {self.candidate(step).name for step in kept}:
                shutil.rmtree(path, ignore_errors=True)
        return checksum_of_kept

    def candidate(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def select(self) -> tuple[int, str, dict[str, Tensor], Evidence]:
        """(step, explanation, weights, evidence) of the evaluation that the rule prefers among those kept."""
        kept = kept_steps(self.history, self.keep)
        entries = [entry for entry in self.history if entry["step"] in kept]
        choice = choose([scores_of(entry) for entry in entries])
        step = int(entries[choice.index]["step"])
        folder = self.candidate(step)
        try:
            if checksum(folder / WEIGHTS, folder / EVIDENCE) != entries[choice.index].get(CANDIDATE):
                raise ValueError("its checksum does not match")
            weights = safetensors.torch.load_file(folder / WEIGHTS)
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
    sample = evaluation.source_sample
    return Evidence(
        source_features_ND=evaluation.holdout.features_MF.float().cpu(),
        source_logits_NK=evaluation.holdout.logits_MK.float().cpu(),
        source_labels_N=torch.tensor(holdout_labels),
        target_features_MD=evaluation.target.features_MF.float().cpu(),
        target_logits_MK=evaluation.target.logits_MK.float().cpu(),
        source_train_features_PD=None if sample is None else sample.features_MF.float().cpu(),
    )


def scores_of(entry: dict[str, Any]) -> dict[str, float]:
    """The validators' scores in a line of the log; a score that could not be had is not a number."""
    return {
        name.removeprefix(PREFIX): float("nan") if value is None else float(value)
        for name, value in entry.items()
        if name.startswith(PREFIX)
    }


def kept_steps(history: Sequence[dict[str, Any]], keep: int) -> set[int]:
    """Replay the run: after each evaluation, all but the ``keep`` that the rule likes best are forgotten."""
    kept: list[dict[str, Any]] = []
    for entry in history:
        kept.append(entry)
        while len(kept) > keep:
            choice = choose([scores_of(one) for one in kept])
            ranked = [choice.mean_ranks.get(index, float("inf")) for index in range(len(kept))]
            kept.pop(max(range(len(kept)), key=lambda index: (ranked[index], -index)))
    return {int(entry["step"]) for entry in kept}
