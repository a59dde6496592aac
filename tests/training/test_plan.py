from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pmtrans.cli import main
from pmtrans.cli.plan_table import amount, duration, show_plan
from pmtrans.config import Config
from pmtrans.data.domains import read_data
from pmtrans.machine import available_memory, begin_peak, forget_peak, peak_memory, used_memory
from pmtrans.progress import Reporter
from pmtrans.training.dry_run import plan, proposals, rehearsal
from pmtrans.training.dry_run.plan import make_plan
from pmtrans.training.dry_run.proposals import combinations, line_at

Configure = Callable[..., Config]
CPU = torch.device("cpu")
QUIET = Reporter(quiet=True)


def dry_run(
    configure: Configure, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    recipe = out.with_suffix(".yaml")
    recipe.write_text(configure(train__baseline=True).to_yaml())
    monkeypatch.setattr(sys, "argv", ["pmtrans", "train", "--recipe", str(recipe), "--out", str(out), "--dry-run"])
    with pytest.raises(SystemExit) as stopped:
        main()
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


def test_dry_run_says_what_it_takes_and_writes_nothing(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, said, error = dry_run(configure, tmp_path / "out", monkeypatch, capsys)
    assert code == 0
    assert all(line.startswith("Dry run: ") for line in error.splitlines())  # what it is doing, beside the plan
    for part in (
        "parameters",
        "AdamW",
        "available memory",
        "a step",
        "an epoch",
        "the linear probe",
        "the source stage",
        "(6 steps)",
    ):
        assert part in said
    assert "does not fit" not in said
    assert "\x1b" not in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "out.yaml"]


@pytest.mark.parametrize("weights", ["timm", "hf-hub:timm/vit_tiny_patch16_224.augreg_in21k", "nowhere.safetensors"])
def test_a_plan_needs_no_weights(
    weights: str,
    tmp_path: Path,
    configure: Configure,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError("a plan asked the network for something")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    code, said, error = dry_run(lambda **some: configure(**some, backbone__weights=weights), tmp_path / "out",
                                monkeypatch, capsys)  # fmt: skip
    assert code == 0, error
    assert "the whole run" in said
    assert ("nowhere.safetensors" in error) == (weights == "nowhere.safetensors")  # the run itself will need it


def test_a_plan_that_does_not_fit_gives_advice_and_another_exit_code(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rehearsal, "available_memory", lambda device: 1000)  # a very small machine
    code, said, _ = dry_run(configure, tmp_path / "out", monkeypatch, capsys)
    assert code == 1
    assert "It does not fit: " in said
    assert "train.checkpoint_activations=true" in said
    assert "train.batch_size=1 train.accumulate=4 train.accumulation=cached" in said
    assert "an epoch" not in said  # no time for what cannot run
    assert not (tmp_path / "out").exists()


def test_the_numbers_are_those_of_the_model_and_the_optimiser(configure: Configure) -> None:
    """A ViT of width 24 with one block at 32 pixels (4 patches), a linear head of 2 classes, Beta and alpha."""
    width = 24
    block = (width * 3 * width + 3 * width) + (width * width + width) + 4 * width + (8 * width * width + 5 * width)
    trunk = (3 * 16 * 16 * width + width) + width + 5 * width + block + 2 * width
    got = make_plan(configure(), QUIET)
    extra = got.parameters - trunk - (2 * width + 2)
    assert 2 <= extra <= 6  # of Beta and tradeoff
    assert got.memory.gradients == 4 * got.trainable
    counts, left = divmod(got.memory.optimiser - 8 * got.trainable, 4)
    assert left == 0
    assert counts < 40  # beside its two moments AdamW counts the steps of each tensor
    assert got.memory.peak > got.memory.weights + got.memory.gradients + got.memory.optimiser
    assert got.memory.fits
    assert (got.steps, got.steps_per_epoch, got.evaluations, got.batch_size) == (6, 2, 3, 4)
    assert got.times is not None
    assert len(got.times.steps) == 4
    mean = sum(got.times.steps) / 4
    assert got.run_seconds == pytest.approx(got.times.probe + 6 * mean + 3 * got.times.evaluation)


@pytest.mark.parametrize("method", ["source_only", "can", "shot"])
def test_methods_that_ask_for_passes_or_choose_pairs_can_be_planned(method: str, configure: Configure) -> None:
    config = configure(method={"name": method}, train__max_steps=3)
    assert make_plan(config, QUIET).run_seconds


def test_the_peak_of_memory_is_seen_and_can_be_forgotten() -> None:
    forget_peak(CPU)
    before = peak_memory(CPU)
    block = torch.ones(25_000_000)
    assert peak_memory(CPU) - before > 60_000_000
    del block
    if Path("/proc/self/clear_refs").exists():
        begin_peak(CPU)  # a training in this process may have let the C library keep what is freed
        assert peak_memory(CPU) < before + 60_000_000
    assert used_memory(CPU) < available_memory(CPU)


def test_amounts_and_durations_are_for_people() -> None:
    assert [amount(size) for size in (2_500_000_000, 12_340_000)] == ["2.50 GB", "12.3 MB"]
    assert [duration(s) for s in (0.0123, 5.04, 119, 600, 9000, 400_000)] == [
        "12 ms", "5.0 s", "119.0 s", "10.0 min", "2.5 h", "4.6 days",
    ]  # fmt: skip


def test_what_does_not_fit_is_proposed_with_settings_that_need_less(
    configure: Configure, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rehearsal, "available_memory", lambda device: 1000)
    options = {"depth": 2, "embed_dim": 24, "num_heads": 2}
    got = make_plan(configure(backbone__options=options), QUIET, processes=4)
    assert [proposal.settings for proposal in got.proposals] == [
        ("train.checkpoint_activations=true",),
        ("train.batch_size=1", "train.accumulate=4", "train.accumulation=cached"),
        ("train.checkpoint_activations=true", "train.batch_size=1", "train.accumulate=4", "train.accumulation=cached"),
        ("train.lora=8",),
        ("train.freeze_blocks=1",),
        ("train.lora=8", "train.checkpoint_activations=true"),
        (
            "train.freeze_blocks=1", "train.lora=8", "train.checkpoint_activations=true", "train.batch_size=1",
            "train.accumulate=4", "train.accumulation=cached",
        ),
    ]  # fmt: skip
    assert all(proposal.alone.seconds > 0 for proposal in got.proposals)
    assert {got.fitting(proposal) for proposal in got.proposals} == {(False, False)}
    show_plan(got)
    said = capsys.readouterr().out
    assert "each of 4" in said
    assert " fits" not in said.replace("does not fit", "")
    show_plan(replace(got, memory=replace(got.memory, available=10**12)))
    assert capsys.readouterr().out.count(" fits") == 2 * len(got.proposals)


def test_proposals_leave_out_what_the_run_has_and_what_excludes_it(configure: Configure) -> None:
    has = configure(train__checkpoint_activations=True, train__lora=8)
    assert {"lora", "checkpoint_activations"}.isdisjoint({key for one in combinations(has, 4, 2) for key in one})
    compiled = combinations(configure(train__compile=True), 4, 2)
    assert compiled == [{"lora": 8}, {"freeze_blocks": 1}, {"lora": 8, "freeze_blocks": 1}]
    without_blocks = combinations(configure(), 4, 0)
    assert not any("freeze_blocks" in one for one in without_blocks)


@pytest.mark.parametrize(
    ("measured", "pairs", "peak"),
    [
        ([(1, 99), (2, 100), (4, 140)], 16, 380),
        ([(2, 100), (4, 140)], 1, 80),
        ([(2, 100), (4, 90)], 16, 90),
        ([(1, 7)], 1, 7),
    ],
)
def test_a_whole_batch_is_on_the_line_of_the_last_two(measured: list[tuple[int, int]], pairs: int, peak: int) -> None:
    assert line_at(measured, pairs) == peak


class Allocator:
    """Stands in for a C library that keeps a fifth of what a step has freed, until it is asked to give it back."""

    def __init__(self) -> None:
        self.kept = self.peak = 0

    def step(self, pairs: int) -> None:
        need = 1000 + 100 * pairs
        self.peak, self.kept = max(self.peak, need + self.kept), need // 5

    def begin_peak(self, device: torch.device) -> int:
        self.kept = self.peak = 0
        return 0

    def peak_memory(self, device: torch.device) -> int:
        return self.peak


def test_proposals_have_the_memory_of_steps_that_follow_each_other(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """(1000 + 100 x 4 pairs) x 1.2, although steps of one and two pairs came before."""
    config, allocator = configure(), Allocator()
    loop = rehearsal.rehearse(config, read_data(config, QUIET), tmp_path, QUIET)
    monkeypatch.setattr(loop, "step_at", lambda step, batches: allocator.step(len(batches[0].source_index)))
    for name in ("begin_peak", "peak_memory"):
        monkeypatch.setattr(proposals, name, getattr(allocator, name))
    alone, _ = proposals._measure(loop, processes=2)
    assert alone.peak == 1.2 * (1000 + 100 * 4)


def test_a_plan_has_the_highest_peak_of_its_steps(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter(range(1000, 10**9))
    for module in (rehearsal, plan):
        monkeypatch.setattr(module, "peak_memory", lambda device: next(peaks))
    got = make_plan(configure(), QUIET)
    assert got.memory.peak == next(peaks) - 1  # that after the timed steps
