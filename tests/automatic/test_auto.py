"""``auto`` end to end, on generated images: what it leaves, and that a kill anywhere changes nothing."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pmtrans
from pmtrans.automatic import auto as module
from pmtrans.automatic.auto import Outcome, auto
from pmtrans.automatic.budget import Clock, TimedReporter
from pmtrans.automatic.leaderboard import Row, best, leaderboard_csv, ranked, read_shipped
from pmtrans.automatic.plan import Cost, Length
from pmtrans.bench.entry import Entry, SharedSettings
from pmtrans.errors import ModelError, RunError
from pmtrans.labelling.choice import pick_images
from pmtrans.report.material import read_material
from pmtrans.report.page import render_report
from pmtrans.texts import read_json
from tiny_data import write_domain

FEW = (Entry("pmtrans", "best"), Entry("mcc"), Entry("pmtrans", "paper"))
COLUMNS = "method,preset,score,estimate,low,high,verdict,seconds,shipped"


@pytest.fixture
def run(two_domains: tuple[Path, Path], tmp_path: Path, tiny_settings: list[str]) -> Callable[..., Outcome]:
    domains = {"data.source": str(two_domains[0]), "data.target": str(two_domains[1]), "seed": 0}

    def call(
        budget: float, out: str = "out", *more: str, given: dict[str, Any] | None = None, **options: Any
    ) -> Outcome:
        settings = SharedSettings(None, (*tiny_settings, "train.evaluate_every=3", *more), {})
        return auto(settings, {**domains, **(given or {})}, tmp_path / out, budget, quiet=True, **options)

    return call


def rows(out: Path) -> list[dict[str, str]]:
    text = (out / "leaderboard.csv").read_text()
    assert text.splitlines()[0] == COLUMNS
    return list(csv.DictReader(text.splitlines()))


@pytest.fixture
def three_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer methods than it would try: each costs a second."""
    monkeypatch.setattr(module, "ENTRIES", FEW)


def test_it_leaves_a_leaderboard_and_a_run_folder_and_a_kill_changes_nothing(
    run: Callable[..., Outcome], tmp_path: Path, three_entries: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = run(3600, "whole")
    whole = rows(tmp_path / "whole")
    assert {"linear_probe", "source_only", "pmtrans", "mcc"} <= {row["method"] for row in whole}
    assert [row["shipped"] for row in whole].count("yes") == 1
    assert whole[0]["shipped"] == "yes"
    for row in whole:
        assert 0 <= float(row["low"]) <= float(row["estimate"]) <= float(row["high"]) <= 1
    assert outcome.rows[0].measured is not None  # the folders of the target are labels, for show
    assert {row["preset"] for row in whole if row["method"] == "pmtrans"} == {"best", "paper"}

    # every verb takes the folder
    out = tmp_path / "whole"
    material = read_material(out)
    assert material.evidence is not None
    assert len(pick_images(material.evidence, 4, 0)) == 4
    assert "Verdict" in render_report(material)[0]
    assert len(pmtrans.load(out).predict(sorted((tmp_path / "target" / "ant").iterdir()))) == 6
    assert "Leaderboard" in (out / "comparison.html").read_text()
    donors = {read_json(path)["run"] for path in out.glob("runs/*/baseline/origin.json")}
    assert donors == {"source_only"}

    # killed in the source stage, in PMTrans and in MCC, the same command ends with the same models
    for steps in (4, 8, 6):
        left = iter(range(steps))
        monkeypatch.setattr(Clock, "tick", lambda clock, left=left: next(left))  # StopIteration: nobody expects it
        with pytest.raises((RuntimeError, StopIteration)):
            run(3600, "killed")
    monkeypatch.undo()
    monkeypatch.setattr(module, "ENTRIES", FEW)
    assert sorted(path.name for path in (tmp_path / "killed" / "runs").iterdir()) == [
        "mcc",
        "pmtrans-best",
        "source_only",
    ]
    assert not (tmp_path / "killed" / "runs" / "mcc" / "summary.json").exists()
    run(3600, "killed")
    compared = [
        [{key: value for key, value in row.items() if key != "seconds"} for row in rows(tmp_path / name)]
        for name in ("whole", "killed")
    ]
    assert compared[0] == compared[1]
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert weights[0] == weights[1]

    # another command is another search
    with pytest.raises(RunError, match=r"begun with other settings \(train.batch_size: 4 -> 5\)"):
        run(3600, "whole", "train.batch_size=5")


def test_a_time_too_short_for_a_training_gives_the_probe_and_more_time_goes_on_from_there(
    run: Callable[..., Outcome], tmp_path: Path, three_entries: None
) -> None:
    outcome = run(0.001)
    out = tmp_path / "out"
    assert [(row["method"], row["verdict"], row["shipped"]) for row in rows(out)] == [("linear_probe", "", "yes")]
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["method"], summary["shipped"]) == ("linear_probe", "probe")
    assert outcome.summary.adapted is None
    assert not (out / "runs" / "source_only" / "finished.json").exists()
    page = render_report(read_material(out))[0]
    assert "A linear probe: nothing was trained" in page
    assert pmtrans.load(out).classes == ("ant", "bee", "cat")

    run(3600)
    assert {"source_only", "pmtrans"} <= {row["method"] for row in rows(out)}
    assert (out / "finished.json").is_file()


def test_other_images_or_labels_are_another_search(
    run: Callable[..., Outcome], two_domains: tuple[Path, Path], tmp_path: Path
) -> None:
    run(0.001)
    moved = tmp_path / "moved"
    two_domains[1].rename(moved)
    run(0.001, given={"data.target": str(moved)})  # the same images elsewhere
    next(moved.rglob("*.png")).unlink()
    with pytest.raises(RunError, match=r"begun with other data \(target\): choose another --out"):
        run(0.001, given={"data.target": str(moved)})


def test_several_sources_target_labels_and_an_open_target_have_a_leaderboard_too(
    run: Callable[..., Outcome], two_domains: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENTRIES", FEW[:2])
    second = write_domain(tmp_path / "second", ["ant", "bee", "cat"], 4, tint=30, seed=2)
    write_domain(two_domains[1], ["dog"], 3, tint=60, seed=3)  # of no source class
    labels = tmp_path / "labels.csv"
    known = sorted(path for path in two_domains[1].rglob("*.png") if path.parent.name in ("ant", "bee"))[::2]
    labels.write_text("path,label\n" + "".join(f"{path},{path.parent.name}\n" for path in known))
    given = {"data.source": [str(two_domains[0]), str(second)], "data.target_labels": str(labels)}
    outcome = run(3600, "out", "data.target_classes=open", given=given)
    assert {row["method"] for row in rows(tmp_path / "out")} == {"linear_probe", "source_only", "pmtrans", "mcc"}
    assert outcome.summary.target_labels is not None
    assert set(outcome.summary.sources or {}) == {"source", "second"}
    assert pmtrans.load(tmp_path / "out").predict(known[:1])


def test_the_time_of_a_rehearsal_is_not_there_for_the_training_after_it(
    run: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENTRIES", FEW[:2])
    rehearsed: list[str] = []

    def rehearse(config: Any, *rest: Any) -> tuple[Cost, Length]:
        """Nothing costs anything, but that a rehearsal of MCC takes nearly all the time."""
        rehearsed.append(config.method["name"])
        return Cost(100.0 if rehearsed[-1] == "mcc" else 1e-9, 0.0), Length(6, 3)

    monkeypatch.setattr(module, "measure", rehearse)
    monkeypatch.setattr(module._Auto, "_slowness", lambda search: 1.0)
    monkeypatch.setattr(Clock, "left", property(lambda clock: 100.0 if "mcc" in rehearsed else 3600.0))
    run(3600)
    assert rehearsed == ["source_only", "pmtrans", "mcc"]
    assert "mcc" not in {row["method"] for row in rows(tmp_path / "out")}  # 600 seconds do not fit into 100


def test_a_folder_of_somebody_else_is_not_touched(run: Callable[..., Outcome], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(RunError, match="was not made by pmtrans auto"):
            run(1, overwrite=overwrite)
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["thesis.tex"]


def test_a_high_score_that_does_not_beat_the_reference_is_not_shipped() -> None:
    def row(method: str, score: float | None, beats: bool) -> Row:
        return Row(method, "", score, 0.1, 0.9, "hurt" if not beats else "helped", 1.0, None, beats)

    source, harmful, good = row("source_only", 0.6, False), row("bnm", 0.95, False), row("mcc", 0.7, True)
    better = row("pmtrans", 0.8, True)
    assert best([source, harmful, good, better]) is better
    assert best([source, harmful]) is None
    order = ranked([source, harmful, good, better], better)
    assert [one.method for one in order] == ["pmtrans", "bnm", "mcc", "source_only"]
    text = leaderboard_csv(order).splitlines()
    assert text[0] == COLUMNS
    assert text[1] == "pmtrans,,0.800000,0.800000,0.100000,0.900000,helped,1.0,yes"
    assert leaderboard_csv([row("x", None, False)]).splitlines()[1] == "x,,,,0.100000,0.900000,hurt,1.0,no"


def test_a_training_that_the_time_ends_concludes_with_what_it_has(
    run: Callable[..., Outcome], tmp_path: Path, three_entries: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = iter(range(1, 100))
    monkeypatch.setattr(  # the time is over at the second step of PMTrans: the source stage asks at 5 of its 6
        TimedReporter, "has_had_enough", lambda reporter: reporter.reserve > 0 and next(asked) > 1 + 5 + 1 + 1
    )
    run(3600)
    out = tmp_path / "out"
    assert {row["method"] for row in rows(out)} == {"linear_probe", "source_only", "pmtrans"}
    assert [entry["step"] for entry in read_json(out / "runs" / "pmtrans-best" / "finished.json")["evaluations"]] == [2]
    assert (out / "model" / "model.safetensors").is_file()
    monkeypatch.undo()
    monkeypatch.setattr(module, "ENTRIES", FEW[:2])
    run(7200)  # more time goes to those that had none
    assert {row["method"] for row in rows(out)} == {"linear_probe", "source_only", "pmtrans", "mcc"}


def test_a_start_that_failed_before_any_training_takes_the_corrected_command(
    run: Callable[..., Outcome], tmp_path: Path, three_entries: None
) -> None:
    with pytest.raises(ModelError, match="vit_tny"):
        run(3600, "out", "backbone.name=vit_tny_patch16_224")
    assert (tmp_path / "out" / "auto.json").is_file()
    run(0.001)
    with pytest.raises(RunError, match=r"begun with other settings \(data\.image_size: 32 -> 48\)"):
        run(3600, "out", "data.image_size=48")


def test_entries_that_differ_by_a_switch_have_rows_of_their_own(
    run: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENTRIES", (Entry("pmtrans", "best"), Entry("pmtrans", "best", ("mcc=1",))))
    run(3600)
    assert {row["preset"] for row in rows(tmp_path / "out") if row["method"] == "pmtrans"} == {"best", "best:mcc=1"}


PLANNED: dict[str, Any] = {
    "asked": {}, "lengths": {"source_only": {"length": [6, 3], "seconds": 1}},
    "costs": {"source_only": {"step": 0.1, "evaluation": 1.0, "start": 0, "steps": 6, "evaluate_every": 3}},
    "failed": {}, "length": [6, 3], "methods_fit": True,
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [{"asked": None}, {"lengths": {"source_only": {"length": [6, 0]}}}, {"lengths": {"source_only": [6, 3]}},
     {"length": "x"}, {"length": [10**30, 1]}, {"costs": {}}, {"costs": {"source_only": 3}}, {"failed": []},
     {"lengths": {"mcc": {"length": [6, 3]}}}, {"lengths": {"source_only": {"length": [6, 3], "seconds": "x"}}}],
)  # fmt: skip
def test_a_changed_plan_is_one_line(run: Callable[..., Outcome], tmp_path: Path, change: dict[str, Any]) -> None:
    out = tmp_path / "out"
    (out / "runs").mkdir(parents=True)
    (out / "auto.json").write_text(json.dumps(PLANNED))
    with pytest.raises(RunError, match="begun with other settings"):
        run(3600)
    (out / "auto.json").write_text(json.dumps({**PLANNED, **change}))
    with pytest.raises(RunError, match=r"^auto\.json in .* cannot be read: --overwrite the folder\.$"):
        run(3600)


@pytest.mark.parametrize("text", ["{}", "[]", '{"spent": -5}', '{"spent": NaN}', f'{{"spent": {10**400}}}'])
def test_a_changed_clock_starts_again(tmp_path: Path, text: str) -> None:
    (tmp_path / "clock.json").write_text(text)
    assert Clock(tmp_path / "clock.json", 60).spent < 30


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b"shipped,method\nno," + b"x" * 200_000 + b"\n", b"shipped\nyes\n", b"shipped,method\nyes\n", None],
)
def test_a_leaderboard_that_cannot_be_read_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "leaderboard.csv").write_bytes(content)
    with pytest.raises(RunError, match=r"leaderboard\.csv' (cannot be read: |has no shipped row)"):
        read_shipped(tmp_path / "leaderboard.csv")
