"""Candidates of a run: who is kept, who is dropped, who is chosen, on scores made up so that the answer is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from made_up_evidence import EvidenceMaker
from pmtrans.errors import RunError
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.judge import Judge, Judged, evidence_of, keep_best, replay
from pmtrans.selection.rule import choose


def judged(step: int, rank: float, arbitration: float = 0.0, source: float = 0.9, classes: float = 0.0) -> Judged:
    """``rank`` is what all three ranking validators say; ``classes`` the logarithm of how many are predicted."""
    return Judged(
        step,
        {
            "arbitration": arbitration,
            "source_accuracy": source,
            "entropy": rank - classes,
            "information_maximisation": rank,
            "bnm": rank,
            "class_ami": rank,
        },
    )


# Arbitration falls by 0.9 points and source accuracy by 0.7 at each evaluation, while every validator that ranks
# rises. The guards allow 4 and 3 points: the first five evaluations are within both.
FALLING = [judged(n, rank=n, arbitration=0.1 - 0.0045 * (n - 1), source=0.95 - 0.007 * (n - 1)) for n in range(1, 21)]


@pytest.fixture
def judge_of(tmp_path: Path) -> Callable[..., Judge]:
    def make(keep: int = 4, history: Sequence[Judged] = ()) -> Judge:
        judge = Judge(
            folder=tmp_path / "candidates",
            holdout_labels=(),
            classes=("a", "b"),
            weights=lambda: {"step": torch.tensor(judge.history[-1].step)},
            warn=lambda text: None,
            baseline=None,
            keep=keep,
            history=list(history),
        )
        return judge

    return make


def kept_on_disk(judge: Judge) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in judge.folder.iterdir())


@pytest.fixture
def evidence(made_up: EvidenceMaker) -> Evidence:
    return made_up()


def test_scores_that_fall_a_little_at_every_evaluation_are_compared_with_the_best_of_the_run(
    judge_of: Callable[..., Judge], evidence: Evidence
) -> None:
    judge = judge_of()
    for one in FALLING:
        judge.offer(one, evidence)
    step, explanation, weights, _ = judge.select()
    assert step == 5
    assert int(weights["step"]) == 5
    assert kept_on_disk(judge) == [2, 3, 4, 5]
    assert explanation == (
        "Evaluation 5 of 20: best mean rank (1.0) by information_maximisation, bnm, class_ami; "
        "refused: 15 for harm, 0 for lost source accuracy, 0 for collapse."
    )


@pytest.mark.parametrize("guarded", ["arbitration", "source_accuracy"])
def test_each_guard_by_itself_holds_against_a_slow_fall(guarded: str) -> None:
    """Of the source accuracy alone: 3 points are allowed, so five of 0.7; of arbitration: 4, so five of 0.9."""
    history = [Judged(one.step, {**one.scores, **_still(guarded)}) for one in FALLING]
    assert [history[place].step for place in replay(history, 2)] == [5, 4]


def _still(but: str) -> dict[str, float]:
    return {name: 0.5 for name in ("arbitration", "source_accuracy") if name != but}


def test_the_collapse_guard_looks_at_the_widest_of_the_run() -> None:
    """Each is narrower by a fifth: four narrow candidates in a row look wide to each other."""
    history = [judged(n, rank=n, classes=3 - 0.22 * n) for n in range(20)]
    # a third as many classes: a logarithm that is lower by 1.0986, so at most four times 0.22 (0.88)
    assert [history[place].step for place in replay(history, 4)] == [4, 3, 2, 1]


def test_only_the_best_are_kept_on_disk_and_the_others_are_dropped(
    judge_of: Callable[..., Judge], evidence: Evidence
) -> None:
    judge = judge_of(keep=2)
    on_disk = []
    for step, rank in enumerate((3.0, 1.0, 2.0, 4.0, 0.0), start=1):
        judge.offer(judged(step, rank), evidence)
        on_disk.append(kept_on_disk(judge))
    assert on_disk == [[1], [1, 2], [1, 3], [1, 4], [1, 4]]
    assert judge.select()[0] == 4
    assert "Evaluation 4 of 5" in judge.select()[1]


def test_a_resumed_judge_keeps_and_chooses_what_an_undisturbed_one_does(
    judge_of: Callable[..., Judge], evidence: Evidence
) -> None:
    interrupted = judge_of()
    for one in FALLING[:9]:
        interrupted.offer(one, evidence)
    resumed = judge_of(history=interrupted.history)
    for one in FALLING[9:]:
        resumed.offer(one, evidence)
    assert kept_on_disk(resumed) == [2, 3, 4, 5]
    assert resumed.select()[0] == 5


def test_a_candidate_that_was_removed_is_one_line(judge_of: Callable[..., Judge], evidence: Evidence) -> None:
    judge = judge_of()
    judge.offer(judged(1, 1.0), evidence)
    (judge.candidate(1) / "weights.safetensors").unlink()
    with pytest.raises(RunError, match="cannot be used"):
        judge.select()


def admitted_of(history: Sequence[Judged]) -> set[int]:
    """Guards by plain loops: arbitration, then source accuracy among the rest; nothing here collapses."""
    most = max(one.scores["arbitration"] for one in history)
    unharmed = [place for place, one in enumerate(history) if one.scores["arbitration"] >= most - 0.02]
    most = max(history[place].scores["source_accuracy"] for place in unharmed)
    return {place for place in unharmed if history[place].scores["source_accuracy"] >= most - 0.03}


hundredths = st.integers(0, 20).map(lambda number: number / 100)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), hundredths, hundredths), min_size=1, max_size=14), st.integers(1, 4))
def test_a_refused_candidate_never_pushes_out_an_admitted_one(
    scores: list[tuple[int, float, float]], keep: int
) -> None:
    history = [judged(step, *values) for step, values in enumerate(scores)]
    kept: tuple[int, ...] = ()
    for count in range(1, len(history) + 1):
        before = {*kept, count - 1}
        kept = keep_best(history[:count], kept, keep)
        admitted = admitted_of(history[:count])
        assert len(kept) == min(keep, len(before))
        assert set(kept) <= before
        if (before - set(kept)) & admitted:
            assert set(kept) <= admitted
        choice = choose([one.scores for one in history[:count]], available=kept)
        assert choice.index in kept
        assert choice.index in admitted or not set(kept) & admitted
        assert f"Evaluation {choice.index + 1} of {count}: " in choice.explanation
    assert replay(history, keep) == kept


def test_where_no_admitted_one_is_kept_the_text_says_so() -> None:
    """The first loses the gate to the second and is dropped; the third refuses the second, but is no match for the
    first."""
    history = [judged(1, 1, 0.065, source=0.8), judged(2, 1, 0.05, source=0.9), judged(3, 1, 0.08, source=0.7)]
    assert replay(history, 1) == (2,)
    choice = choose([one.scores for one in history], available=(2,))
    assert choice.admitted == (0,)
    assert choice.explanation == (
        "Evaluation 3 of 3: none that passes every guard is kept, and this one comes nearest; "
        "refused: 1 for harm, 1 for lost source accuracy, 0 for collapse."
    )


def test_where_a_better_rank_was_dropped_the_text_says_of_those_kept() -> None:
    history = [judged(step, rank) for step, rank in enumerate((1.0, 3.0, 2.0))]
    assert "best mean rank (2.0) by" in choose([one.scores for one in history], available=(0, 2)).explanation
    assert "of those kept" in choose([one.scores for one in history], available=(0, 2)).explanation
    assert "of those kept" not in choose([one.scores for one in history], available=(1, 2)).explanation


@pytest.mark.parametrize("name", ["oracle_accuracy", "oracle_per_class_mean", "score.bnm", "game.divergence"])
def test_the_judge_has_no_place_for_what_is_not_a_validators_score(name: str) -> None:
    assert {field.name for field in fields(Judged)} == {"step", "scores", "checksum"}
    with pytest.raises(ValueError, match=f"{name}: not a score of a validator"):
        Judged(1, {"bnm": 0.5, name: 0.9})


@dataclass
class Outputs:
    features_MF: torch.Tensor
    logits_MK: torch.Tensor


@dataclass
class Evaluation:
    target: Outputs
    holdout: Outputs | None
    source_sample: Outputs | None = None
    ground: tuple[torch.Tensor, torch.Tensor] | None = None
    step: int = 1


def test_evidence_has_the_second_ground_of_either_domain_and_an_even_sample_of_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pmtrans.selection.evidence.MOST_TARGET", 5)
    target, holdout = Outputs(torch.randn(9, 3), torch.randn(9, 2)), Outputs(torch.randn(4, 3), torch.randn(4, 2))
    ground = torch.randn(4, 7).half(), torch.randn(9, 7).half()
    found = evidence_of(Evaluation(target, holdout, ground=ground), [0, 1, 1, 0])
    assert found.source_ground_NG is not None
    assert found.target_ground_MG is not None
    assert torch.equal(found.source_ground_NG, ground[0].float())
    assert torch.equal(found.target_ground_MG, ground[1][::2].float())
    assert torch.equal(found.target_logits_MK, target.logits_MK[::2])
    monkeypatch.setattr("pmtrans.selection.evidence.MOST_TARGET", 9)
    assert torch.equal(evidence_of(Evaluation(target, holdout), [0, 1, 1, 0]).target_logits_MK, target.logits_MK)
