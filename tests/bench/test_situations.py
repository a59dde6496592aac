"""``benchmarks/situations.py``: which images and labels a situation has, its measures, and a round of them all."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import situation_data as data
import situations
from situation_runs import Answers, Bench, Recorder, Trained

import pmtrans
from pmtrans.data.demo.digits import PER_CLASS
from pmtrans.data.reading.read import read_source, read_target
from pmtrans.run.folder import RunFolder
from tiny_run import SETTINGS, write_images

CLASSES = ("bike", "cup", "desk", "pen", "ring", "shoe")


def made_up(sizes: dict[str, int]) -> data.Images:
    return [(f"/images/{name}/{number}.png", name) for name, size in sizes.items() for number in range(size)]


# ---- the data


def test_labels_are_drawn_of_every_class_and_the_rest_measures() -> None:
    images = made_up({"bike": 9, "cup": 2, "desk": 5})
    given = data.draw_labels(images, 3, seed=0)
    assert Counter(label for _, label in given) == {"bike": 3, "cup": 2, "desk": 3}
    left = data.without(images, given)
    assert sorted(left + given) == sorted(images)
    assert set(left).isdisjoint(given)


def test_what_is_drawn_depends_on_the_seed_alone_and_fewer_labels_are_among_more() -> None:
    images = made_up({"bike": 30, "cup": 30})
    assert data.draw_labels(images, 3, seed=1) == data.draw_labels(images, 3, seed=1)
    assert data.draw_labels(images, 3, seed=1) != data.draw_labels(images, 3, seed=2)
    assert set(data.draw_labels(images, 1, seed=1)) < set(data.draw_labels(images, 3, seed=1))
    elsewhere = [(path.replace("/images", "/other"), label) for path, label in images]
    drawn = [Path(path).name for path, _ in data.draw_labels(elsewhere, 3, seed=1)]
    assert drawn == [Path(path).name for path, _ in data.draw_labels(images, 3, seed=1)]


def test_a_long_tail_falls_geometrically_to_a_tenth() -> None:
    sizes = {"bike": 60, "cup": 100, "desk": 100, "pen": 45, "ring": 50}
    tail = data.long_tail(made_up(sizes), seed=0)
    counts = Counter(label for _, label in tail)
    assert [counts[name] for name in ("cup", "desk", "bike", "ring", "pen")] == [100, 56, 32, 18, 10]
    assert len(set(tail)) == len(tail)
    assert set(tail) <= set(made_up(sizes))
    assert tail == data.long_tail(made_up(sizes), seed=0) != data.long_tail(made_up(sizes), seed=1)


def test_a_long_tail_begins_as_high_as_every_class_allows() -> None:
    counts = Counter(label for _, label in data.long_tail(made_up({"bike": 100, "cup": 12, "desk": 11}), seed=0))
    assert counts == {"bike": 38, "cup": 12, "desk": 4}  # 12 is 38 times the square root of a tenth


def test_shares_are_those_of_the_images() -> None:
    images = made_up({"bike": 3, "desk": 1})
    assert data.class_shares(images, ("bike", "cup", "desk")) == [0.75, 0.0, 0.25]


def test_a_table_is_read_as_the_domain_that_it_names(tmp_path: Path) -> None:
    write_images(tmp_path / "shop", CLASSES, images=2)
    images = data.list_domain(tmp_path / "shop")
    assert Counter(label for _, label in images) == dict.fromkeys(CLASSES, 2)
    half = data.of_classes(images, CLASSES[:3])
    table = data.write_table(tmp_path / "half.csv", half)
    assert data.read_images(table) == half
    source = read_source(table)
    assert source.classes == CLASSES[:3]
    assert sorted(source.paths) == sorted(path for path, _ in half)
    target = read_target(table, CLASSES)
    assert target.labelled is not None
    assert {(path, CLASSES[label]) for path, label in zip(target.labelled.paths, target.labelled.labels, strict=True)} \
        == set(half)  # fmt: skip
    written = table.stat().st_mtime_ns
    data.write_table(table, half)
    assert table.stat().st_mtime_ns == written


def test_folders_are_named_by_their_first_letter(tmp_path: Path) -> None:
    for name in ("amazon", "dslr", ".cache"):
        (tmp_path / name).mkdir()
    assert {letter: place.name for letter, place in data.folder_domains(tmp_path).items()} == {
        "A": "amazon", "D": "dslr",
    }  # fmt: skip
    (tmp_path / "daylight").mkdir()
    with pytest.raises(SystemExit, match="same letter"):
        data.folder_domains(tmp_path)


def test_printed_digits_are_divided_by_their_fonts() -> None:
    printed = [(f"/digits/{number // PER_CLASS}/{number:04d}.png", str(number // PER_CLASS)) for number in range(2000)]
    sans, roman = data.by_font(printed)
    assert sorted(sans + roman) == printed
    for digit in range(10):  # 21 fonts: the first 8 have no serifs, nor has the one in place 18
        own = [int(Path(path).stem) - digit * PER_CLASS for path, label in sans if label == str(digit)]
        assert own == [place for place in range(PER_CLASS) if place % 21 < 8 or place % 21 == 18]


# ---- the measures


def answers(labels: list[int], sure: list[float]) -> Answers:
    """An image per label, with that logit for it and 0 for the other two classes."""
    logits = torch.zeros(len(labels), 3)
    logits[torch.arange(len(labels)), torch.tensor(labels)] = torch.tensor(sure)
    return Answers(tuple(f"/{number}" for number in range(len(labels))), ("bike", "cup", "desk"), logits)


def test_accuracy_is_that_of_the_images_asked_for() -> None:
    given = answers([0, 1, 2, 1], [5.0] * 4)
    images = [("/0", "bike"), ("/1", "cup"), ("/2", "cup"), ("/3", "shoe")]
    assert given.accuracy(images) == pytest.approx(2 / 3), "an image of an unknown class does not count"
    assert given.accuracy(images[1:3]) == pytest.approx(1 / 2)
    assert given.accuracy(list(reversed(images))) == pytest.approx(2 / 3)


@pytest.mark.parametrize("rule", [situations.strange, situations.unsure])
def test_images_without_a_sure_class_are_called_unknown(rule: object) -> None:
    assert callable(rule)
    given = answers([0, 1, 2, 0, 1, 2], [9.0, 9.0, 9.0, 1.0, 1.0, 9.0])
    images = [("/0", "bike"), ("/1", "cup"), ("/2", "cup"), ("/3", "shoe"), ("/4", "desk"), ("/5", "shoe")]
    found = situations.open_measures(given, images, rule)
    assert found["known"] == pytest.approx(100 * 2 / 4)  # of bike, cup, cup as desk, desk as unknown
    assert found["unknown"] == pytest.approx(100 / 2)
    assert found["harmonic mean"] == pytest.approx(0.5)
    assert found["closed"] == pytest.approx(100 * 2 / 4)


def test_advice_is_read_from_warnings_that_outlive_the_run(tmp_path: Path) -> None:
    reporter = Recorder(tmp_path / "run.warnings.txt")
    reporter.warn("a class seems to be missing: train with data.target_classes=partial")
    reporter.warn("something else")
    lines = (tmp_path / "run.warnings.txt").read_text().splitlines()
    assert Trained(tmp_path, tuple(lines)).advised == ["partial"]
    assert Trained(tmp_path, ("something else",)).advised == []


def test_the_table_takes_the_gain_from_the_best_without_the_switch_on_the_same_seed() -> None:
    def made(role: str, model: str, seed: int, accuracy: float, advised: list[str]) -> situations.Record:
        key = {"situation": "sources", "task": "AD2W", "seed": seed, "seconds": 10.0}
        return {**key, "role": role, "model": model, "accuracy": accuracy, "advised": advised, "details": {"known": 50}}

    records = [
        *(made("plain", "A", seed, value, ["open"] * seed) for seed, value in ((0, 0.5), (1, 0.7))),
        *(made("plain", "D", seed, value, []) for seed, value in ((0, 0.6), (1, 0.6))),
        *(made("switch", "A + D", seed, value, []) for seed, value in ((0, 0.8), (1, 0.8))),
    ]
    rows = [line.strip("| ").split(" | ") for line in situations.table(records).splitlines()[2:]]
    deviation = math.sqrt(2) * 10
    assert rows[0][3:7] == [f"60.0 ± {deviation:.1f}", "", "known 50.0", "open 1/2"]
    assert rows[2][3:5] == ["80.0 ± 0.0", f"15.0 ± {deviation / 2:.1f}"]
    assert rows[2][-2:] == ["10", "2"]


# ---- a whole round


@pytest.fixture(scope="module")
def round_of_all(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[situations.Record], list[str]]:
    """Every situation from three tiny domains, twice: the second time nothing is trained."""
    folder = tmp_path_factory.mktemp("situations")
    for name, images in (("amazon", 12), ("dslr", 6), ("webcam", 6)):
        write_images(folder / "data" / name, CLASSES, images)
    settings = {**SETTINGS, "train.max_steps": 2, "train.start": "source", "train.baseline": True}
    settings |= {"selection.game": False}
    overrides = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    record, out = folder / "records.json", folder / "out"
    command = ["situations.py", "--data", str(folder / "data"), "--out", str(out), "--tasks", "A2W", "--moves", "A2W2D"]
    printed: list[str] = []
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng():
        patch.setattr(sys, "argv", [*command, "--json", str(record), *overrides])
        patch.setattr("builtins.print", lambda *text, **_: printed.append(" ".join(map(str, text))))
        situations.main()
        trained = len(printed)
        patch.setattr("situation_runs.train", None)
        patch.setattr("situation_runs.move", None)
        situations.main()
    assert len(printed) == trained + 1, "finished runs are skipped"
    assert printed[-1] == printed[trained - 1]
    return out, json.loads(record.read_text()), printed


def test_every_situation_has_its_records(round_of_all: tuple[Path, list[situations.Record], list[str]]) -> None:
    _, records, printed = round_of_all
    assert list(dict.fromkeys(one["situation"] for one in records)) == list(situations.SITUATIONS)
    for name in situations.SITUATIONS:
        roles = {one["role"] for one in records if one["situation"] == name}
        assert {"source only", "plain", "switch"} <= roles, name
    measured = {(one["situation"], one["images"]) for one in records if one["situation"].startswith("labels")}
    assert measured == {("labels-1", 30), ("labels-3", 18)}, "of 36 target images, those without a given label"
    assert printed[-1].count("\n") == 2 + len(records)


def test_source_stages_are_shared(round_of_all: tuple[Path, list[situations.Record], list[str]]) -> None:
    out, _, _ = round_of_all
    stages = {entry.name for entry in (out / "0").iterdir() if entry.is_dir() and entry.name.startswith("source-")}
    assert stages == {"source-A", "source-D", "source-AD", "source-A-first-4"}
    name = Path("model") / "model.safetensors"
    own = (out / "0" / "source-A" / name).read_bytes()
    for run in ("A2W", "A2D", "A2W-labels-3", "A2W-half-partial", "A2W-tail"):
        assert (out / "0" / run / "baseline" / name).read_bytes() == own, run


def test_measures_are_those_of_the_commands(round_of_all: tuple[Path, list[situations.Record], list[str]]) -> None:
    """``evaluate`` on what a table names, ``predict --prior`` image by image."""
    out, records, _ = round_of_all

    def of(situation: str, model: str) -> situations.Record:
        return next(one for one in records if (one["situation"], one["model"]) == (situation, model))

    opened = pmtrans.evaluate(out / "0" / "A2W-known-open", out.parent / "data" / "webcam").open
    assert opened is not None
    found = of("open", "data.target_classes=open")
    assert found["accuracy"] == pytest.approx(opened.harmonic_mean)
    assert found["details"]["known"] == pytest.approx(100 * opened.known_accuracy)
    half = pmtrans.evaluate(out / "0" / "A2W-half-partial", out / "tables" / "W-first-3.csv")
    assert half.images == 18
    assert of("partial", "data.target_classes=partial")["accuracy"] == pytest.approx(half.accuracy.overall)
    tail = data.read_images(out / "tables" / "W-tail-0.csv")
    for prior in ("source", "uniform", "target"):
        predictor = pmtrans.load(out / "0" / "A2W-tail", prior=prior)
        predicted = [one.label for one in predictor.predict([path for path, _ in tail])]
        right = sum(one == label for one, (_, label) in zip(predicted, tail, strict=True)) / len(tail)
        assert of("long-tail", f"predict --prior {prior}")["accuracy"] == pytest.approx(right), prior


def test_a_source_stage_of_the_user_is_started_from(
    round_of_all: tuple[Path, list[situations.Record], list[str]], tmp_path: Path
) -> None:
    out, _, _ = round_of_all
    stages = tmp_path / "stages"
    stages.mkdir()
    (stages / "A2D-0").symlink_to(out / "0" / "source-A")
    (stages / "W2A-0").mkdir()  # a run that is not finished
    bench = Bench(tmp_path / "out", data.folder_domains(out.parent / "data"), source_stages=stages)
    assert bench.source_stage("A2W", seed=0).path == stages / "A2D-0"
    assert RunFolder(bench.source_stage("A2W", seed=0).path).summary.is_file()
