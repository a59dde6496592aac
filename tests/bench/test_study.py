"""``pmtrans study``: the file, what it refuses, and studies that are really run."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from pmtrans.bench.study import plan_study, read_study
from pmtrans.cli import app
from pmtrans.errors import ConfigError, UserError
from tiny_data import write_domain
from tiny_office_home import write_office_home

ROOT = Path(__file__).parents[2]
CLASSES = ["ant", "bee", "cat"]
TINY: dict[str, Any] = {
    "backbone": {
        "name": "vit_tiny_patch16_224",
        "weights": "none",
        "options": {"depth": 2, "embed_dim": 24, "num_heads": 2},
    },
    "data": {"image_size": 32, "workers": 0, "holdout": 0.3},
    "train.batch_size": 4,
    "train.max_steps": 6,
    "train.evaluate_every": 2,
    "train.learning_rate": 3e-3,
    "selection.game": False,
}
STUDY: dict[str, Any] = {
    "settings": TINY,
    "variants": {"paper": {"method.preset": "paper"}, "uniform": {"method.attention": "uniform"}},
    "tasks": {"shop2phone": {"source": "photos/shop", "target": "photos/phone"}},
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_domain(tmp_path / "photos" / "shop", CLASSES, 8, tint=0)
    write_domain(tmp_path / "photos" / "phone", CLASSES, 5, tint=60, seed=1)
    return tmp_path


def write(home: Path, **changes: Any) -> Path:
    path = home / "study.yaml"
    path.write_text(yaml.safe_dump({**STUDY, **changes}, sort_keys=False))
    return path


def run_study(file: Path, out: Path, *more: str) -> Result:
    return CliRunner().invoke(app, ["study", str(file), "--out", str(out), "--quiet", *more])


def rows(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((out / "results.csv").open()))


def without_time(out: Path) -> list[dict[str, str]]:
    return [{key: value for key, value in row.items() if key not in ("seconds", "memory")} for row in rows(out)]


def test_a_study_is_run_resumed_and_extended(home: Path) -> None:
    """Stopped by a signal in the middle of a run; then to its end; then a seed more: nothing is done twice."""
    file, out = write(home), home / "out"

    def stop_at_a_checkpoint() -> None:
        end = time.monotonic() + 120
        while not list(out.glob("runs/shop2phone/uniform/0/checkpoints/step-*")) and time.monotonic() < end:
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=stop_at_a_checkpoint)
    watcher.start()
    stopped = run_study(file, out)
    watcher.join()
    assert stopped.exit_code == 128 + signal.SIGTERM
    assert [row["variant"] for row in rows(out)] == ["paper"]
    assert "1 of 2 runs are not done." in (out / "table.md").read_text()
    first = out / "runs" / "shop2phone" / "paper" / "0"
    before = (first / "result.json").stat().st_mtime_ns

    done = run_study(file, out)
    assert done.exit_code == 0, done.output
    assert done.stdout == (out / "table.md").read_text()
    assert list(rows(out)[0]) == [
        "variant", "task", "seed", "label_free_score", "selected", "last", "oracle", "seconds", "images", "memory",
    ]  # fmt: skip
    assert [(row["variant"], row["task"], row["seed"]) for row in rows(out)] == [
        ("paper", "shop2phone", "0"),
        ("uniform", "shop2phone", "0"),
    ]
    for row in rows(out):
        folder = out / "runs" / "shop2phone" / row["variant"] / "0"
        summary = json.loads((folder / "summary.json").read_text())
        for key, name in (("selected", "adapted"), ("last", "last"), ("oracle", "oracle")):
            assert float(row[key]) == summary[name]
        expected = (
            summary["estimates"]["source_only"]["accuracy"] + (summary["evaluations"]["adapted"]["score.arbitration"])
        )
        assert float(row["label_free_score"]) == pytest.approx(expected)
        assert float(row["seconds"]) == json.loads((folder / "finished.json").read_text())["seconds"]
        assert int(row["images"]) == 6 * 4 * 3  # steps x pairs x (source, target, mixed)
        assert int(row["memory"]) > 0
    origin = out / "runs" / "shop2phone" / "uniform" / "0" / "baseline" / "origin.json"
    assert json.loads(origin.read_text())["same_target"]  # the source stage is that of the first variant
    assert (out / "study.svg").is_file()
    assert (out / "study.png").is_file()

    undisturbed = home / "undisturbed"
    assert run_study(file, undisturbed).exit_code == 0
    assert without_time(out) == without_time(undisturbed)
    adapted = Path("runs/shop2phone/uniform/0/evidence.safetensors")
    assert (out / adapted).read_bytes() == (undisturbed / adapted).read_bytes()

    write(home, seeds=[0, 1], variants={"uniform": STUDY["variants"]["uniform"]})
    extended = run_study(file, out)
    assert extended.exit_code == 0, extended.output
    assert [(row["variant"], row["seed"]) for row in rows(out)] == [("uniform", "0"), ("uniform", "1")]
    assert (first / "result.json").stat().st_mtime_ns == before

    write(home, variants={"paper": {"method.preset": "paper", "method.temperature": 0.5}})
    changed = run_study(file, out)
    assert isinstance(changed.exception, UserError)
    assert "started with other settings (method.temperature: 1.0 -> 0.5)" in str(changed.exception)


def test_without_target_labels_variants_are_ranked_by_the_label_free_score(home: Path) -> None:
    """Other methods take part; a relative weights file lies beside the study; the table says who starts elsewhere."""
    flat = home / "photos" / "flat"
    flat.mkdir()
    for number, image in enumerate(sorted((home / "photos" / "phone").rglob("*.png"))):
        shutil.copy(image, flat / f"{number}.png")
    variants = {
        "source": {"method.name": "source_only"},
        "pmtrans": {},
        "bnm": {"method.name": "bnm"},
        "smaller": {"train.batch_size": 3},
    }
    tasks = {"own": {"source": "photos/shop", "target": "photos/flat"}}
    file, out = write(home, variants=variants, tasks=tasks, settings={**TINY, "method.temperature": 0.5}), home / "out"
    done = run_study(file, out)
    assert done.exit_code == 0, done.output
    found = {row["variant"]: row for row in rows(out)}
    assert all(row[key] == "" for row in found.values() for key in ("selected", "last", "oracle"))
    assert {name: int(row["images"]) for name, row in found.items()} == {
        "source": 6 * 4, "pmtrans": 6 * 4 * 3, "bnm": 6 * 4 * 2, "smaller": 6 * 3 * 3,
    }  # fmt: skip
    estimate = json.loads((out / "runs" / "own" / "source" / "0" / "summary.json").read_text())["estimates"]
    assert float(found["source"]["label_free_score"]) == estimate["source_only"]["accuracy"]
    gains = {
        name: json.loads((out / "runs" / "own" / name / "0" / "summary.json").read_text())["evaluations"]["adapted"]
        for name in ("pmtrans", "bnm")
    }
    for name, evaluation in gains.items():  # one source stage: scores differ by the gain alone
        gain = float(found[name]["label_free_score"]) - float(found["source"]["label_free_score"])
        assert gain == pytest.approx(evaluation["score.arbitration"])
    assert "The targets have no labels" in done.stdout
    assert "Not all variants share their source stage (source, pmtrans, bnm; smaller)" in done.stdout


def test_a_failed_run_is_named_in_the_table_and_by_the_exit_code(home: Path) -> None:
    (home / "photos" / "phone" / "ant" / "000.png").write_bytes(b"not an image")
    tasks = {**STUDY["tasks"], "shop2shop": {"source": "photos/shop", "target": "photos/shop"}}
    done = run_study(write(home, tasks=tasks, variants={"source": {"method.name": "source_only"}}), home / "out")
    assert done.exit_code == 1
    assert "- failed: shop2phone source seed 0: 1 images cannot be read" in done.stdout
    assert [row["task"] for row in rows(home / "out")] == ["shop2shop"]


def test_variants_override_settings_and_these_the_recipe(home: Path) -> None:
    (home / "base.yaml").write_text("train: {epochs: 7, clip: 2}\nmethod: {name: pmtrans, temperature: 0.5}\n")
    (home / "deit.safetensors").write_bytes(b"")
    variants = {
        "a": {"train.clip": 1, "method": {"beta": "fixed(2,2)"}},
        "b": None,
        "c": {"method.name": "bnm", "train.max_steps": None},
    }
    file = write(home, recipe="base.yaml", weights="deit.safetensors", variants=variants, settings={"train.clip": 3})
    jobs = {job.method: job for job in plan_study(read_study(file), home / "out").jobs}
    assert [(jobs[name].config.train.epochs, jobs[name].config.train.clip) for name in "abc"] == [
        (7, 1),
        (7, 3),
        (7, 3),
    ]
    assert [jobs[name].config.method.get("temperature") for name in "abc"] == [0.5, 0.5, None]
    assert jobs["a"].config.method["beta_start"] == [2.0, 2.0]
    assert jobs["b"].config.backbone.weights == str((home / "deit.safetensors").resolve())
    assert jobs["b"].config.data.source == str(home / "photos" / "shop")
    assert jobs["b"].folder == (home / "out").resolve() / "runs" / "shop2phone" / "b" / "0"
    assert [jobs[name].after for name in "abc"] == [None, None, jobs["b"].folder]  # a clips otherwise


def test_tasks_of_a_benchmark_are_found_by_name(tmp_path: Path) -> None:
    write_office_home(tmp_path / "office-home", per_class=1)
    changes: dict[str, Any] = {
        "benchmark": "office-home",
        "data": "office-home",
        "tasks": ["A2C", "R2P"],
        "seeds": [3, 4, 3],
    }
    suite = plan_study(read_study(write(tmp_path, **changes)), tmp_path / "out")
    assert [(job.seed, job.task, job.method) for job in suite.jobs][:4] == [
        (3, "A2C", "paper"), (3, "A2C", "uniform"), (3, "R2P", "paper"), (3, "R2P", "uniform"),
    ]  # fmt: skip
    assert len(suite.jobs) == 8
    assert Path(suite.jobs[2].config.data.target or "").name == "Product"
    changes["tasks"] = None  # all of them
    assert len(read_study(write(tmp_path, **changes)).tasks) == 12


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"variant": {}}, "study.yaml: Unknown key 'variant'. Did you mean 'variants'?"),
        ({"variants": {}}, "study.yaml: Key 'variants' must map at least one name"),
        ({"variants": {"a": {"train.epoch": 3}}}, "study.yaml: variants.a: Unknown key 'train.epoch'."),
        ({"variants": {"a": {"method.temprature": 3}}}, "study.yaml: variants.a: Unknown key 'method.temprature'."),
        ({"variants": {"a": {"train.epochs": "many"}}}, "study.yaml: variants.a: Key 'train.epochs' cannot be 'many'"),
        ({"variants": {"a": {"method.name": "pmtrance"}}}, "study.yaml: variants.a: Unknown method 'pmtrance'."),
        ({"variants": {"a": {"seed": 3}}}, "study.yaml: variants.a: Key 'seed' differs between the runs"),
        ({"variants": {"a": {"train.epochs.x": 1}}, "settings": {"train.epochs": 1}}, "'epochs' is a value"),
        ({"variants": {"a b": {}, "a-b": {}}}, "study.yaml: Key 'variants': 'a b' and 'a-b' would be the same folder"),
        ({"variants": {"...": {}}}, "study.yaml: Key 'variants': '...' needs a letter"),
        ({"settings": {"data.target": "x"}}, "study.yaml: Key 'data.target' differs between the runs of a study"),
        ({"settings": {"trian": {"epochs": 1}}}, "study.yaml: variants.paper: Unknown key 'trian'."),
        ({"reference": "papr"}, "study.yaml: Key 'reference' names 'papr', which is no variant. Did you mean 'paper'?"),
        ({"tasks": None}, "study.yaml: Key 'tasks' must map names"),
        ({"tasks": {}}, "study.yaml: Key 'tasks' must map names"),
        ({"tasks": "A2W"}, "study.yaml: Key 'tasks' must map names"),
        ({"tasks": ["A2W"]}, "study.yaml: Key 'tasks' is a list of names: say of which 'benchmark'"),
        ({"tasks": ["A2X"], "benchmark": "office-31"}, "study.yaml: tasks: "),
        ({"tasks": ["A2W"], "benchmark": "office-32"}, "study.yaml: benchmark: no benchmark 'office-32'"),
        ({"benchmark": "office-31"}, "study.yaml: Key 'benchmark' goes with a list"),
        ({"tasks": {"t": {"source": "photos/shop"}}}, "study.yaml: Key 'tasks.t' must be {source: PATH"),
        (
            {"tasks": {"t": {"source": "photos/shop", "target": "photos/phone", "taget": 1}}},
            "study.yaml: Unknown key 'tasks.t.taget'. Did you mean 'tasks.t.target'?",
        ),
        ({"tasks": {"t": "photos"}}, "study.yaml: Key 'tasks.t' must be {source: PATH, target: PATH}"),
        ({"tasks": {"t": {"source": "photos/shop", "target": "photos/gone"}}}, "photos/gone: there is no such folder"),
        ({"tasks": {"t": {"source": "gone", "target": "photos/phone"}}}, "study.yaml: tasks.t: "),
        ({"seeds": []}, "study.yaml: Key 'seeds' cannot be []"),
        ({"seeds": 3}, "study.yaml: Key 'seeds' cannot be '3'"),
        ({"seeds": [0, -1]}, "study.yaml: Key 'seeds' cannot be [0, -1]"),
        ({"weights": "gone.pth"}, "study.yaml: variants.paper: Key 'backbone.weights': there is no file 'gone.pth'"),
        ({"recipe": "gone.yaml"}, "study.yaml: Recipe 'gone.yaml' is neither a file nor a packaged recipe"),
    ],
)
def test_a_mistake_in_the_file_is_told_in_one_line_before_anything_is_trained(
    home: Path, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(UserError) as caught:
        read_study(write(home, **changes))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["- a\n", "a: [1", "", "variants"])
def test_a_file_that_is_no_study_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "study.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"^study.yaml: it "):
        read_study(tmp_path / "study.yaml")
    with pytest.raises(ConfigError, match="neither a file nor a packaged study"):
        read_study(tmp_path / "gone.yaml")


def test_a_folder_with_other_things_in_it_is_not_touched(home: Path) -> None:
    (home / "mine").mkdir()
    (home / "mine" / "thesis.txt").write_text("keep")
    refused = run_study(write(home), home / "mine")
    assert isinstance(refused.exception, UserError)
    assert "is not empty and not a suite" in str(refused.exception)
    unknown = run_study(write(home), home / "out", "--engine", "cluster")
    assert "--engine 'cluster' is neither local nor ray" in str(unknown.exception)
    assert not (home / "out").exists()


@pytest.mark.parametrize("file", sorted((ROOT / "recipes" / "studies").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_packaged_study_is_valid_and_found_by_its_name(file: Path, tmp_path: Path) -> None:
    for domain in ("amazon", "dslr", "webcam"):
        write_domain(tmp_path / domain, CLASSES, 1, tint=0)
    study = read_study(Path("studies") / file.stem, data=tmp_path, weights="none")
    suite = plan_study(study, tmp_path / "out")
    assert len(suite.jobs) == len(study.variants) * len(study.tasks) * len(study.seeds)
    assert {job.config.backbone.weights for job in suite.jobs} == {"none"}
    assert f"pmtrans study recipes/studies/{file.name}" in file.read_text()
