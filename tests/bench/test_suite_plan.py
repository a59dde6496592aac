"""Which runs a suite has, where they go, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from pmtrans.bench.entry import Entry, SharedSettings, parse_entries
from pmtrans.bench.jobs import Suite, open_suite, parse_seeds, plan_suite
from pmtrans.errors import ConfigError, DataError, RunError
from tiny_office_home import FLAGS, SETTINGS, write_office_home


@pytest.fixture
def office_home(tmp_path: Path) -> Path:
    return write_office_home(tmp_path / "data", per_class=1)


def plan(
    data: Path, out: Path, methods: str = "pmtrans,source_only", *overrides: str, seeds: tuple[int, ...] = (0,)
) -> Suite:
    settings = SharedSettings(None, (*SETTINGS, *overrides), FLAGS)
    return plan_suite("Office-Home", data, out, parse_entries(methods), seeds, settings)


def test_a_suite_is_all_tasks_of_the_paper_for_every_method_and_seed(office_home: Path, tmp_path: Path) -> None:
    made = plan(office_home, tmp_path / "out", seeds=(0, 7))
    assert len(made.jobs) == 12 * 2 * 2
    job = next(job for job in made.jobs if (job.task, job.method, job.seed) == ("R2P", "pmtrans", 7))
    assert job.folder == (tmp_path / "out").resolve() / "runs" / "R2P" / "pmtrans" / "7"
    assert job.config.seed == 7
    assert [Path(place).name for place in job.config.data.sources] == ["Real World"]
    assert Path(job.config.data.target or "").name == "Product"


def test_runs_that_share_a_baseline_wait_for_the_one_that_trains_it(office_home: Path, tmp_path: Path) -> None:
    """Source-only comes first whatever the order; another head or batch size is another baseline."""
    methods = "pmtrans,pmtrans:mixing=mixup,pmtrans:reference,pmtrans:train.batch_size=3,source_only"
    jobs = [job for job in plan(office_home, tmp_path / "out", methods).jobs if job.task == "A2C"]
    folders = {job.method: job.folder for job in jobs}
    assert jobs[0].method == "source_only"
    assert {job.method: job.after for job in jobs} == {
        "source_only": None,
        "pmtrans": folders["source_only"],
        "pmtrans:mixing=mixup": folders["source_only"],
        "pmtrans:reference": None,  # an MLP head
        "pmtrans:train.batch_size=3": None,
    }


def test_entries_that_come_to_the_same_are_run_once(office_home: Path, tmp_path: Path) -> None:
    made = plan(office_home, tmp_path / "out", "pmtrans,pmtrans:paper,pmtrans:beta=ascend")
    assert made.methods == ("pmtrans",)
    assert len(made.jobs) == 12


def test_other_settings_in_the_same_folder_are_refused(office_home: Path, tmp_path: Path) -> None:
    open_suite(plan(office_home, tmp_path / "out"))
    open_suite(plan(office_home, tmp_path / "out", "cdan,pmtrans:reference", seeds=(3,)))
    with pytest.raises(RunError, match=r"started with other settings \(train.clip: 5.0 -> 1.0\)"):
        open_suite(plan(office_home, tmp_path / "out", "pmtrans", "train.clip=1"))


def test_a_run_that_was_made_with_another_method_section_is_refused(office_home: Path, tmp_path: Path) -> None:
    first = plan(office_home, tmp_path / "out", "pmtrans")
    open_suite(first)
    first.jobs[0].folder.mkdir(parents=True)
    (first.jobs[0].folder / "config.yaml").write_text(first.jobs[0].config.to_yaml())
    open_suite(first)
    with pytest.raises(RunError, match=r"started with other settings \(method.temperature: 1.0 -> 0.5\)"):
        open_suite(plan(office_home, tmp_path / "out", "pmtrans", "method.temperature=0.5"))


def test_a_folder_with_other_things_in_it_is_not_touched(office_home: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("keep")
    with pytest.raises(RunError, match="is not empty and not a suite"):
        open_suite(plan(office_home, tmp_path / "mine"))
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_an_unknown_task_is_refused(office_home: Path, tmp_path: Path) -> None:
    settings = SharedSettings(None, SETTINGS, FLAGS)
    with pytest.raises(DataError, match="no task 'A2X'"):
        plan_suite("office-home", office_home, tmp_path / "out", [Entry("pmtrans")], [0], settings, ["A2X"])


def test_domainnet_by_its_splits_is_measured_on_the_test_list(tmp_path: Path) -> None:
    for domain in ("clipart", "sketch"):
        (tmp_path / domain).mkdir()
        for part in ("train", "test"):
            (tmp_path / f"{domain}_{part}.txt").write_text(f"{domain}/a/1.png 0\n")
    made = plan_suite(
        "domainnet",
        tmp_path,
        tmp_path / "out",
        [Entry("pmtrans")],
        [0],
        SharedSettings(),
        ["clp2skt"],
        protocol="split",
    )
    (job,) = made.jobs
    assert made.name == "domainnet-split"
    assert job.evaluation == str(tmp_path.resolve() / "sketch_test.txt")
    assert job.config.data.target == str(tmp_path.resolve() / "sketch_train.txt")


def test_visda_has_one_task_and_its_classes_in_a_file(tmp_path: Path) -> None:
    for domain in ("train", "validation"):
        (tmp_path / "visda" / domain / "bus").mkdir(parents=True)
    made = plan_suite("visda", tmp_path / "visda", tmp_path / "out", [Entry("pmtrans")], [0], SharedSettings())
    open_suite(made)
    (job,) = made.jobs
    assert job.task == "train2validation"
    names = Path(job.config.data.classes or "").read_text().split()
    assert (len(names), names[0], names[-1]) == (12, "aeroplane", "truck")


@pytest.mark.parametrize("text", ["", "a", "0,-1", "0.5"])
def test_seeds_that_are_no_numbers_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--seeds"):
        parse_seeds(text)
