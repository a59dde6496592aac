"""New images are predicted once each, and drift is told with the false-alarm rate that was asked for."""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch
from PIL import Image
from typer.testing import CliRunner

import pmtrans
from pmtrans.cli import app
from pmtrans.errors import UserError
from pmtrans.progress import Reporter
from pmtrans.signals import stop_on_signals
from pmtrans.watching import watch as watching
from pmtrans.watching.drift import measure_drift
from pmtrans.watching.ledger import Ledger
from pmtrans.watching.watch import Watched, WatchOptions
from tiny_data import write_domain

CLASSES = ["ant & $bee$", "<script>alert(1)<", "very " + 40 * "long "]
OLD = 1_000_000_000  # a time long past: nothing is still on its way


def by_hand(one: torch.Tensor, other: torch.Tensor) -> float:
    """The unbiased MMD^2 in plain loops."""
    rows = [*one.tolist(), *other.tolist()]
    distances = sorted(math.dist(a, b) for i, a in enumerate(rows) for j, b in enumerate(rows) if i != j)
    width = distances[(len(distances) - 1) // 2]

    def mean(left: list[list[float]], right: list[list[float]]) -> float:
        values = [math.exp(-(math.dist(a, b) ** 2) / (2 * width**2)) for a in left for b in right if a is not b]
        return sum(values) / len(values)

    x, y = rows[: len(one)], rows[len(one) :]
    return mean(x, x) + mean(y, y) - 2 * mean(x, y)


def test_the_discrepancy_is_that_of_the_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    reference, window = torch.randn(7, 3, generator=generator), torch.randn(5, 3, generator=generator) + 0.5
    assert measure_drift(reference, window, 0.05).mmd == pytest.approx(by_hand(window, reference), abs=1e-9)


def test_false_alarms_are_as_often_as_stated_and_drift_is_found() -> None:
    """Of 300 windows that do not differ 10 % raise an alarm: 30, give or take 3 deviations of 5.2."""
    generator = torch.Generator().manual_seed(0)
    alarms = drifted = 0
    for number in range(300):
        reference = torch.randn(40, 4, generator=generator).exp()  # skewed: the test assumes no shape
        window = torch.randn(12, 4, generator=generator).exp()
        alarms += measure_drift(reference, window, 0.1, seed=number).alarm
        if number < 20:
            drifted += measure_drift(reference, window + 2.0, 0.1, seed=number).alarm
    assert 30 - 16 <= alarms <= 30 + 16
    assert drifted == 20


def test_the_smallest_p_value_can_reach_a_small_rate() -> None:
    generator = torch.Generator().manual_seed(0)
    reference, window = torch.randn(60, 4, generator=generator), torch.randn(20, 4, generator=generator) + 9
    found = measure_drift(reference, window, 0.001)
    assert found.p_value == pytest.approx(1 / 10_000)
    assert found.alarm


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def arrive(place: Path, per_class: int, seed: int, tint: int = 60) -> Path:
    """Images like those of the run's target, or tinted otherwise."""
    write_domain(place, CLASSES, per_class, tint=tint, seed=seed)
    for path in place.rglob("*.png"):
        os.utime(path, (OLD, OLD))
    return place


@pytest.fixture
def run(trained_run: Path, tmp_path: Path) -> Path:
    """A copy that may be written to; its target has 18 images."""
    shutil.copytree(trained_run, tmp_path / "run")
    return tmp_path / "run"


def look(run: Path, images: Path, **options: Any) -> Watched:
    return pmtrans.watch(run, images, window=8, quiet=True, **options)


def test_every_image_has_one_row_however_often_it_is_looked(run: Path, tmp_path: Path) -> None:
    place = arrive(tmp_path / "incoming", 4, seed=5)
    (place / "broken.png").write_bytes(b"no image")
    os.utime(place / "broken.png", (OLD, OLD))
    first = look(run, place)
    assert (first.images, first.unreadable, first.windows) == (13, 1, 1)
    assert look(run, place) == first
    arrive(tmp_path / "more", 2, seed=6).rename(place / "more")
    assert look(run, place).images == 19
    rows = rows_of(run / "watch" / "predictions.csv")
    assert sorted(row["path"] for row in rows) == sorted(str(path) for path in place.rglob("*.png"))
    predicted = {one.path: one for one in pmtrans.load(run).predict([row["path"] for row in rows])}
    for row in rows:
        one = predicted[row["path"]]
        assert row["class"] == (one.label or "")
        assert (row["error"] != "") == (one.error is not None)
    windows = rows_of(run / "watch" / "windows.csv")
    assert [(row["window"], row["first"], row["last"]) for row in windows] == [("1", "1", "8"), ("2", "9", "16")]


def test_killed_at_any_moment_the_tables_are_those_of_a_watch_that_was_not(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = arrive(tmp_path / "incoming", 6, seed=5)
    monkeypatch.setattr(watching, "BATCH", 4)
    look(run, place, out=tmp_path / "whole")
    commit, calls = Ledger.commit, []

    def dies(self: Ledger) -> None:
        calls.append(1)
        if len(calls) % 2 == 0:  # rows of this batch are in the tables, and do not count
            for file in self._tables.values():
                file.flush()
            raise KeyboardInterrupt
        commit(self)

    monkeypatch.setattr(Ledger, "commit", dies)
    for _ in range(20):
        try:
            look(run, place, out=tmp_path / "cut")
            break
        except KeyboardInterrupt:
            continue
    for name in ("predictions.csv", "windows.csv"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert len(rows_of(tmp_path / "cut" / "predictions.csv")) == 18
    assert len(calls) > 5


def test_a_file_that_is_still_being_copied_waits_for_the_next_look(run: Path, tmp_path: Path) -> None:
    place = arrive(tmp_path / "incoming", 1, seed=5)
    whole = (next(place.rglob("*.png"))).read_bytes()
    (place / "coming.png").write_bytes(whole[:50])
    assert look(run, place).images == 3
    (place / "coming.png").write_bytes(whole)
    assert (look(run, place).images, look(run, place).unreadable) == (4, 0)


def said_of(run: Path, place: Path, out: Path) -> list[str]:
    arguments = ["watch", str(run), "--images", str(place), "--out", str(out), "--window", "8", "--once"]
    result = CliRunner().invoke(app, [*arguments, "--false-alarms", "0.05"])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_drift_is_told_with_its_rate_and_lasting_drift_with_what_to_do(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = said_of(run, arrive(tmp_path / "calm", 8, seed=7), tmp_path / "calm-watch")
    assert "of windows that do not differ 5.00% raise a false alarm" in calm[0]
    assert not any("Adapting again would pay" in line for line in calm)
    other = tmp_path / "other"
    for number in range(24):
        path = other / f"{number:02d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (36, 36), (250, 10 * (number % 5), 0)).save(path)
        os.utime(path, (OLD, OLD))
    sure = said_of(run, other, tmp_path / "sure")
    assert [line.split(": ")[1].split(",")[0] for line in sure if line.startswith("Window")] == ["drift"] * 3
    monkeypatch.setattr(watching, "LESS_SURE", -2.0)  # whatever the tiny model's confidence is
    pays = said_of(run, other, tmp_path / "pays")
    told = [line for line in pays if line.startswith("Adapting again would pay")]
    assert len(told) == 2
    assert f"pmtrans adapt {run} --target {other}" in told[0]


def test_a_signal_ends_it_cleanly_and_the_rows_so_far_count(run: Path, tmp_path: Path) -> None:
    place, said, table = arrive(tmp_path / "incoming", 2, seed=5), list[str](), tmp_path / "out" / "predictions.csv"

    def signal_once_all_are_done() -> None:
        while not (table.is_file() and len(rows_of(table)) == 6):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    with stop_on_signals() as stop:
        sender = threading.Thread(target=signal_once_all_are_done, daemon=True)
        sender.start()
        options = WatchOptions(window=8, every=0.01)
        ended = watching.watch(run, place, table.parent, options, Reporter(quiet=True), said.append, stop)
        sender.join()
    assert ended.images == 6
    assert said[-1].startswith("6 images in ")
    assert len(rows_of(table)) == 6


def test_a_moved_run_is_watched_with_the_features_of_the_given_model(run: Path, tmp_path: Path) -> None:
    place = arrive(tmp_path / "incoming", 6, seed=5)
    pmtrans.adapt(run, place, tmp_path / "moved", settings={"train.max_steps": 2}, quiet=True)
    assert look(tmp_path / "moved", place).windows == 2
    given = pmtrans.load(tmp_path / "moved" / "baseline" / "model")
    paths = [row["path"] for row in rows_of(tmp_path / "moved" / "watch" / "predictions.csv")]
    images = torch.stack([given.transform(Image.open(path).convert("RGB")) for path in paths])
    with torch.no_grad():
        features = given.model.backbone(images)
    reference = safetensors.torch.load_file(tmp_path / "moved" / "watch" / "reference.safetensors")["features"]
    assert torch.cdist(features, reference).min(1).values.max() < 1e-3  # the target itself has arrived


def test_a_run_without_saved_features_compares_with_its_target_images(run: Path, tmp_path: Path) -> None:
    place = arrive(tmp_path / "incoming", 3, seed=5)
    look(run, place, out=tmp_path / "saved")
    (run / "probe" / "evidence.safetensors").unlink()
    look(run, place, out=tmp_path / "computed")
    tables = [rows_of(tmp_path / name / "windows.csv") for name in ("saved", "computed")]
    assert [row["drift"] for row in tables[0]] == [row["drift"] for row in tables[1]]
    assert float(tables[0][0]["mmd"]) == pytest.approx(float(tables[1][0]["mmd"]), abs=1e-3)


def test_bad_input_is_one_line(run: Path, saved_model: Callable[..., Path], tmp_path: Path) -> None:
    place = arrive(tmp_path / "incoming", 1, seed=5)

    def said(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["watch", *arguments, "--once"])
        assert isinstance(result.exception, UserError), result.output
        assert "\n" not in str(result.exception)
        return str(result.exception)

    images = ["--images", str(place)]
    assert "is a model folder: `watch` needs the run folder" in said(str(saved_model()), *images)
    assert "not a run folder" in said(str(place), *images)
    assert "no such folder" in said(str(run), "--images", str(tmp_path / "none"))
    look(run, place)
    assert "another window" in said(str(run), *images, "--window", "9")
    (run / "watch" / "predictions.csv").write_text("")
    assert "was shortened" in said(str(run), *images, "--window", "8")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "predictions.csv").write_text("mine\n")
    assert "of something else" in said(str(run), *images, "--out", str(foreign))
    assert (foreign / "predictions.csv").read_text() == "mine\n"
    (run / "summary.json").unlink()
    assert "is not finished" in said(str(run), *images)


def test_a_changed_reference_or_state_is_one_line(run: Path, tmp_path: Path) -> None:
    place = arrive(tmp_path / "incoming", 4, seed=5)
    look(run, place)
    reference, state = run / "watch" / "reference.safetensors", run / "watch" / "state.safetensors"
    whole = {path: path.read_bytes() for path in (reference, state)}
    kept = safetensors.torch.load_file(reference)
    for change in (
        {"features": torch.zeros(20, 7)}, {"features": torch.zeros(20)}, {"features": kept["features"] * math.nan},
        {"features": kept["features"][:0]}, {"confidence": torch.tensor(math.nan)}, {"confidence": torch.zeros(2)},
    ):  # fmt: skip
        safetensors.torch.save_file({**kept, **change}, reference)
        with pytest.raises(UserError, match=r"reference\.safetensors' cannot be read: remove it"):
            look(run, place)
    reference.write_bytes(whole[reference])

    with safetensors.safe_open(state, framework="pt") as file:
        counts = json.loads(file.metadata()["watch"])
        waiting = {name: file.get_tensor(name) for name in ("features", "confidence")}
    assert len(waiting["features"]) == 4
    forged: list[tuple[dict[str, Any], dict[str, torch.Tensor]]] = [
        ({name: value}, {}) for name, value in (("images", -5), ("table_bytes", -5), ("windows", 10**30))
    ]
    forged += [({}, {"features": torch.zeros(3, 3)}), ({}, {"features": waiting["features"] * math.nan})]
    forged += [({}, {"confidence": torch.zeros(1)}), ({}, {"confidence": waiting["confidence"] + 7})]
    for numbers, tensors in forged:
        described = {"watch": json.dumps({**counts, **numbers})}
        safetensors.torch.save_file({**waiting, **tensors}, state, metadata=described)
        with pytest.raises(UserError, match=r"cannot be resumed \(.*\): choose another --out"):
            look(run, place)
    state.write_bytes(whole[state])
    assert look(run, place).images == 12
