"""What a study reads of its runs: numbers that a run wrote, or one line that says which folder to remove."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from pmtrans.bench.execute import read_result
from pmtrans.bench.study_records import images_encoded, read_score
from pmtrans.config import Config
from pmtrans.errors import RunError
from pmtrans.run.folder import RunFolder
from pmtrans.settings import load_config

RESULT: dict[str, Any] = {
    "suite": "study", "task": "shop2phone", "method": "paper", "backbone": "vit", "seed": 0, "selected": 0.5,
    "last": 0.5, "oracle": None, "per_class_mean": 0.5, "seconds": 10, "memory": 1000,
}  # fmt: skip
FINISHED: dict[str, Any] = {
    "step": 2, "seconds": 1.5, "accuracy": None, "evaluations": [{"step": 2}, {"step": 4}], "explanation": "",
    "evidence": False,
}  # fmt: skip
DATA: dict[str, Any] = {"source": {"images": 20, "names": "a"}, "target": {"images": 10, "names": "b"}}


@pytest.fixture
def config() -> Config:
    return load_config(None, ["method={name: source_only}", "train.max_steps=4", "train.batch_size=8"])


def write(folder: Path, **files: Any) -> RunFolder:
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return RunFolder(folder)


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path, result=RESULT)
    found = read_result(tmp_path)
    assert found is not None
    assert {name: getattr(found, name) for name in RESULT} == RESULT


@pytest.mark.parametrize(
    "change",
    [{"selected": "x"}, {"seconds": "a"}, {"seconds": float("nan")}, {"memory": [1]}, {"memory": 10**300},
     {"last": 1e308}, {"oracle": -0.1}, {"task": 7}],
)  # fmt: skip
def test_a_run_with_a_changed_result_is_not_done(tmp_path: Path, change: dict[str, Any]) -> None:
    write(tmp_path, result={**RESULT, **change})
    assert read_result(tmp_path) is None


def test_a_result_that_is_no_object_is_not_done(tmp_path: Path) -> None:
    write(tmp_path, result=[])
    assert read_result(tmp_path) is None


def test_images_are_steps_times_images_of_a_step(tmp_path: Path, config: Config) -> None:
    assert images_encoded(write(tmp_path, data=DATA, finished=FINISHED), config) == 4 * 8 * 1


@pytest.mark.parametrize(
    "files",
    [{"data": []}, {"data": {"target": DATA["target"]}}, {"data": {**DATA, "source": {"images": "x"}}},
     {"data": {**DATA, "source": {"images": 0}}}, {"finished": {**FINISHED, "evaluations": []}},
     {"finished": {**FINISHED, "evaluations": [{"step": 10**12}]}},
     {"finished": {**FINISHED, "evaluations": [{"step": -1}]}}, {"finished": {**FINISHED, "evaluations": [{}]}}],
)  # fmt: skip
def test_a_changed_record_is_one_line_at_once(tmp_path: Path, config: Config, files: dict[str, Any]) -> None:
    folder = write(tmp_path, **{"data": DATA, "finished": FINISHED, **files})
    begin = time.process_time()
    with pytest.raises(RunError, match=r"json' cannot be read \(.*\): remove the folder") as caught:
        images_encoded(folder, config)
    assert "\n" not in str(caught.value)
    assert time.process_time() - begin < 1


def test_a_changed_summary_of_a_run_with_a_result_names_the_folder_to_remove(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"summary\.json' cannot be read \(.*\): remove the folder"):
        read_score(write(tmp_path, summary={"evaluations": {"adapted": {"score.arbitration": "x"}}}))
