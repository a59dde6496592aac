from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pmtrans.errors import ConfigError
from pmtrans.run.metrics import MetricsLog, read_metrics
from pmtrans.settings import load_config
from pmtrans.training.records import open_loggers, refuse_missing, run_name


def write_three(folder: Path, name: str, warnings: list[str]) -> None:
    log = MetricsLog(folder / "metrics.jsonl")
    log.listeners += open_loggers([name], folder, 0, warnings.append)
    for step in (1, 2, 3):
        log.write(step, {"loss": 1.0 / step, "score.bnm": 0.5, "event": "evaluation", "broken": float("nan")})
    log.close()


def test_tensorboard_has_the_numbers_of_the_log(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    warnings: list[str] = []
    write_three(tmp_path, "tensorboard", warnings)
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == ["loss", "score/bnm"]
    logged = [line["loss"] for line in read_metrics(tmp_path / "metrics.jsonl")]
    assert [event.value for event in events.Scalars("loss")] == pytest.approx(logged)
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3]
    assert warnings == []


def test_wandb_writes_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    warnings: list[str] = []
    write_three(tmp_path, "wandb", warnings)
    assert warnings == []
    assert len(list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))) == 1


def test_trackio_stores_locally(tmp_path: Path) -> None:
    trackio = pytest.importorskip("trackio")
    warnings: list[str] = []
    write_three(tmp_path, "trackio", warnings)
    assert warnings == []
    runs = trackio.Api().runs("pmtrans")
    assert run_name(tmp_path) in {run.name for run in runs}


def test_a_missing_package_is_said_before_training_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError) as caught:
        refuse_missing(["wandb"])
    said = "train.loggers names 'wandb', which is not installed: pip install 'pmtrans[wandb]'."
    assert str(caught.value) == said


def test_an_unknown_logger_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train\.loggers"):
        load_config(None, ["train.loggers=[abacus]"])


def test_a_logger_that_breaks_is_warned_of_once_and_training_continues(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").write_text("a file where a folder should be")
    pytest.importorskip("tensorboard")
    warnings: list[str] = []
    write_three(tmp_path, "tensorboard", warnings)
    assert len(warnings) == 1
    assert warnings[0].startswith("logger tensorboard failed")
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 3


def test_a_baseline_is_named_after_its_run(tmp_path: Path) -> None:
    assert run_name(tmp_path / "phone") == "phone"
    assert run_name(tmp_path / "phone" / "baseline") == "phone-baseline"
