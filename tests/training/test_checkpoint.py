from __future__ import annotations

import resource
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pmtrans.errors import RunError
from pmtrans.selection.judge import Judged
from pmtrans.signals import Interrupted
from pmtrans.training.checkpoint import (
    Saver,
    Snapshot,
    checkpoints,
    load_snapshot,
    restore_snapshot,
    save_snapshot,
    take_snapshot,
)


def snapshot(step: int, floats: int = 10) -> Snapshot:
    return Snapshot(step, {"method.weight": torch.arange(floats).float()}, 1.5, [{"step": step, "score": 0.1}])


def trained(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    names, parameters = zip(*module.named_parameters(), strict=True)
    optimiser = torch.optim.AdamW([{"names": list(names), "params": list(parameters)}], fused=True)
    for _ in range(3):
        module(torch.randn(5, 3)).square().mean().backward()
        optimiser.step()
    return module, optimiser


def step(module: nn.Module, optimiser: torch.optim.Optimizer) -> list[Tensor]:
    optimiser.zero_grad()
    module(torch.ones(2, 3) * torch.tensor([[1.0], [2.0]])).square().sum().backward()
    optimiser.step()
    return [value.clone() for value in module.state_dict().values()]


def test_what_is_read_back_continues_as_the_original_does(tmp_path: Path) -> None:
    module, optimiser = trained(0)
    judged = [Judged(3, {"bnm": 0.1, "arbitration": -0.25})]
    taken = take_snapshot(3, module, optimiser, 2.5, [{"step": 3, "x": float("nan")}], judged)
    path = save_snapshot(tmp_path, taken, keep=1)
    other, other_optimiser = trained(1)
    loaded = load_snapshot(path)
    restore_snapshot(loaded, other, other_optimiser)
    assert (loaded.step, loaded.seconds, loaded.judged) == (3, 2.5, judged)
    assert all(map(torch.equal, step(module, optimiser), step(other, other_optimiser)))


def test_a_snapshot_is_a_copy_and_later_steps_do_not_reach_it() -> None:
    module, optimiser = trained(0)
    taken = take_snapshot(3, module, optimiser, 0.0, [])
    before = {name: value.clone() for name, value in taken.tensors.items()}
    step(module, optimiser)
    assert all(torch.equal(value, before[name]) for name, value in taken.tensors.items())


def test_the_latest_are_kept(tmp_path: Path) -> None:
    for number in (2, 4, 6, 8):
        save_snapshot(tmp_path, snapshot(number), keep=2)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-00000006", "step-00000008"]


def test_a_later_checkpoint_that_was_passed_over_does_not_count_among_the_latest(tmp_path: Path) -> None:
    for number in (2, 4, 9):
        save_snapshot(tmp_path, snapshot(number), keep=3)
    save_snapshot(tmp_path, snapshot(5), keep=1)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-00000005", "step-00000009"]


def test_a_model_that_does_not_fit_is_refused_in_one_line() -> None:
    module, optimiser = trained(0)
    with pytest.raises(RunError, match=r"^Checkpoint step-00000003 does not fit .*choose another --out\.$"):
        restore_snapshot(snapshot(3), module, optimiser)


def test_a_full_disk_is_reported_by_the_saver_and_the_checkpoint_before_stays_whole(tmp_path: Path) -> None:
    saver = Saver(tmp_path, keep=2)
    saver.save(snapshot(1, 100))
    saver.wait()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # no file may grow beyond: the disk is full for it
    try:
        saver.save(snapshot(2, 100_000))
        with pytest.raises(OSError, match="File too large"):
            saver.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert load_snapshot(tmp_path / "step-00000001").step == 1


def test_leaving_waits_for_the_disk_unless_the_user_will_not(tmp_path: Path) -> None:
    def leave(number: int, error: BaseException) -> bool:
        """Whether the checkpoint is there when the block is left."""
        saver = Saver(tmp_path, keep=9)
        saver.save(snapshot(number, 5_000_000))
        saver.__exit__(type(error), error, None)
        written = (tmp_path / f"step-{number:08d}").is_dir()
        saver.wait()
        return written

    assert leave(1, ValueError())
    assert leave(2, Interrupted(2))
    assert not leave(3, Interrupted(2, at_once=True))
