from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pmtrans.config import Config
from pmtrans.errors import RunError, UserError
from pmtrans.files import run_lock
from pmtrans.progress import Reporter
from pmtrans.training.checkpoint import checkpoints
from pmtrans.training.train import train
from tiny_run import Crash, Witness, assert_same_run, crash

Configure = Callable[..., Config]


def test_the_same_command_resumes_from_the_last_checkpoint(cut: Path, configure: Configure, undisturbed: Path) -> None:
    witness = Witness()
    train(configure(), cut, witness)
    assert witness.steps == [5, 6]
    assert "Resuming pmtrans from step 4 of 6." in witness.said
    assert_same_run(cut, undisturbed)


def test_what_training_saw_of_the_target_survives_a_crash(tmp_path: Path, configure: Configure) -> None:
    """k-means of step 4 sees features of steps 2 and 3: a checkpoint without them would give other labels."""
    switches = {"method__reuse_features": True, "method__refresh_steps": 2}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(configure(**switches), whole, Witness())
    with pytest.raises(Crash):
        train(configure(**switches), cut, Witness({3: crash}))
    train(configure(**switches), cut, Witness())
    assert_same_run(cut, whole)


def test_half_a_line_at_the_end_of_the_metrics_is_dropped(cut: Path, configure: Configure, undisturbed: Path) -> None:
    with (cut / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "event": "eval')
    train(configure(), cut, Witness())
    assert_same_run(cut, undisturbed)


@pytest.mark.parametrize("workers", [2, None])
def test_the_number_of_workers_may_change(
    workers: int | None, cut: Path, configure: Configure, undisturbed: Path
) -> None:
    train(configure(data__workers=workers), cut, Witness())
    assert_same_run(cut, undisturbed)


def test_memory_may_be_saved_from_here_on(cut: Path, configure: Configure, undisturbed: Path) -> None:
    train(configure(train__checkpoint_activations=True), cut, Witness())
    assert_same_run(cut, undisturbed)


def test_a_finished_run_says_so_and_trains_nothing(cut: Path, configure: Configure) -> None:
    train(configure(), cut, Witness())
    before = {path: path.stat().st_mtime_ns for path in cut.rglob("*") if path.name != ".lock"}
    witness = Witness()
    train(configure(), cut, witness)
    assert witness.steps == []
    assert witness.said[-1] == f"Run {cut} is finished already."
    assert before == {path: path.stat().st_mtime_ns for path in cut.rglob("*") if path.name != ".lock"}


def test_a_kill_between_the_model_and_the_summary_costs_only_the_summary(cut: Path, configure: Configure) -> None:
    before = train(configure(), cut, Witness())
    (cut / "summary.json").unlink()
    witness = Witness()
    assert train(configure(), cut, witness) == before
    assert witness.steps == []


def test_a_finished_baseline_is_not_trained_again(tmp_path: Path, configure: Configure) -> None:
    run = tmp_path / "run"
    first = Witness()
    stops = {"left": 2}

    def at_the_second_training() -> None:
        stops["left"] -= 1
        if not stops["left"]:
            raise Crash
        first.at[3] = at_the_second_training

    first.at = {3: at_the_second_training}
    with pytest.raises(Crash):
        train(configure(train__baseline=True), run, first)
    assert first.steps == [1, 2, 3, 4, 5, 6, 1, 2, 3]
    second = Witness()
    summary = train(configure(train__baseline=True), run, second)
    assert second.steps == [3, 4, 5, 6]
    assert "Source only is finished already." in second.said
    assert summary.source_only is not None


def test_another_configuration_is_refused_and_the_difference_shown(cut: Path, configure: Configure) -> None:
    with pytest.raises(RunError, match=r"another configuration \(train\.batch_size: 4 -> 3\): choose another --out"):
        train(configure(train__batch_size=3), cut, Witness())


def test_other_data_are_refused_and_the_difference_shown(cut: Path, configure: Configure, images: Path) -> None:
    (images / "target" / "cat" / "0.png").rename(images / "target" / "cat" / "00.png")
    with pytest.raises(RunError, match=r"The target has changed since run .* \(names: \w+ -> \w+\): put it back"):
        train(configure(), cut, Witness())
    (images / "target" / "cat" / "00.png").unlink()
    with pytest.raises(RunError, match=r"The target has changed since run .* \(images: 10 -> 9; names"):
        train(configure(), cut, Witness())


def test_an_image_of_another_size_is_noticed(cut: Path, configure: Configure, images: Path) -> None:
    with (images / "source" / "cat" / "0.png").open("ab") as file:
        file.write(b"more")
    with pytest.raises(RunError, match=r"The source has changed since run .* \(sizes: "):
        train(configure(), cut, Witness())


def test_never_refuses_a_folder_with_a_run(cut: Path, configure: Configure) -> None:
    with pytest.raises(RunError, match=r"holds a run: resume it with --resume auto, or --overwrite it\.$"):
        train(configure(), cut, Witness(), resume="never")


def test_a_path_resumes_from_that_checkpoint(cut: Path, configure: Configure, undisturbed: Path) -> None:
    witness = Witness()
    train(configure(), cut, witness, resume=str(cut / "checkpoints" / "step-00000002"))
    assert witness.steps == [3, 4, 5, 6]
    assert_same_run(cut, undisturbed)


def test_a_path_to_another_run_resumes_in_a_new_folder(
    cut: Path, tmp_path: Path, configure: Configure, undisturbed: Path
) -> None:
    before = sorted(path for path in cut.rglob("*"))
    for name, resume, first in (("a", cut, 5), ("b", cut / "checkpoints" / "step-00000002", 3)):
        witness = Witness()
        train(configure(), tmp_path / name, witness, resume=str(resume))
        assert witness.steps[0] == first
        assert_same_run(tmp_path / name, undisturbed)
    assert sorted(path for path in cut.rglob("*")) == before
    with pytest.raises(RunError, match="holds a run of its own"):
        train(configure(), tmp_path / "a", Witness(), resume=str(cut))


@pytest.mark.parametrize("path", ["nowhere", "images", "cut/checkpoints", "yes"])
def test_a_path_that_is_no_run_is_refused(path: str, cut: Path, tmp_path: Path, configure: Configure) -> None:
    with pytest.raises(RunError, match=r"is neither a run folder nor a checkpoint .*it may also be auto or never\.$"):
        train(configure(), tmp_path / "new", Witness(), resume=str(tmp_path / path))


def test_a_broken_checkpoint_asked_for_by_name_is_refused_and_nothing_is_dropped(
    cut: Path, configure: Configure
) -> None:
    (cut / "checkpoints" / "step-00000002" / "state.json").write_text("{")
    with pytest.raises(RunError, match=r"cannot be used: it cannot be read \(not JSON: .*\)"):
        train(configure(), cut, Witness(), resume=str(cut / "checkpoints" / "step-00000002"))
    assert len(checkpoints(cut / "checkpoints")) == 2


def test_two_runs_on_one_folder_exclude_each_other(cut: Path, configure: Configure) -> None:
    before = sorted(cut.rglob("*"))
    with run_lock(cut):
        for overwrite in (False, True):
            with pytest.raises(RunError, match=rf"is in use by process {os.getpid()}: wait, or choose another --out"):
                train(configure(), cut, Witness(), overwrite=overwrite)
    assert sorted(cut.rglob("*")) == before


def test_overwrite_begins_again(cut: Path, configure: Configure, undisturbed: Path) -> None:
    (cut / "report.html").touch()
    witness = Witness()
    train(configure(), cut, witness, overwrite=True)
    assert witness.steps == [1, 2, 3, 4, 5, 6]
    assert not (cut / "report.html").exists()
    assert_same_run(cut, undisturbed)


def test_a_start_that_failed_before_its_first_step_takes_the_corrected_command(
    tmp_path: Path, configure: Configure, undisturbed: Path
) -> None:
    run = tmp_path / "run"
    with pytest.raises(UserError):
        train(configure(backbone__name="vit_tiny_patch16_2244"), run, Reporter(quiet=True))
    train(configure(), run, Reporter(quiet=True), resume="never")
    assert_same_run(run, undisturbed)


def test_a_failure_after_the_probe_takes_the_corrected_command_too(tmp_path: Path, configure: Configure) -> None:
    run = tmp_path / "run"
    with pytest.raises(Crash):
        train(configure(train__batch_size=3), run, Witness({0: crash, 1: crash}))
    (run / "metrics.jsonl").unlink(missing_ok=True)  # as when memory runs out in the first step
    assert (run / "probe" / "finished.json").is_file()
    summary = train(configure(), run, Reporter(quiet=True))
    assert summary.selected_step > 0
    assert "batch_size: 4" in (run / "config.yaml").read_text()
