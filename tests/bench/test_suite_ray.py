"""A real local Ray cluster, one worker killed in the middle of a run.

Ray and its workers take half a minute to start on a slow machine: run with PMTRANS_SOAK=1 (``make soak`` does, and
installs Ray first). Asked for and without Ray these tests fail: a campaign that ran nothing has shown nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pmtrans.bench.display import Display
from pmtrans.bench.engine import LocalProcesses
from pmtrans.bench.entry import SharedSettings
from pmtrans.bench.jobs import open_suite
from pmtrans.bench.ray_engine import RayEngine
from pmtrans.bench.suite import run_suite
from pmtrans.bench.tuning import TuningFiles, plan_tuning
from pmtrans.errors import ConfigError
from tiny_office_home import FLAGS, SETTINGS, write_office_home
from tiny_suite import holder, kill_when, results, run, tiny_plan, weights

pytestmark = pytest.mark.skipif(not os.environ.get("PMTRANS_SOAK"), reason="takes half a minute: PMTRANS_SOAK=1")


def test_ray_gives_the_results_of_one_process_even_if_a_worker_is_killed(tmp_path: Path) -> None:
    data = write_office_home(tmp_path / "data")
    serial, out = tmp_path / "serial", tmp_path / "out"
    assert run(tiny_plan(data, serial)) == 0
    plan = tiny_plan(data, out)
    engine = RayEngine(cpus=1)
    killer = kill_when(lambda: holder(out))
    assert run(plan, engine) == 0
    assert len(killer.victims) == 1, "a process was killed while it trained"
    assert results(out) == results(serial)
    assert weights(out) == weights(serial)


def test_a_tuning_on_ray_chooses_what_one_process_chooses(tmp_path: Path) -> None:
    data = write_office_home(tmp_path / "data")
    settings = SharedSettings(None, (*SETTINGS, "train.max_steps=4", "train.evaluate_every=1"), FLAGS)
    for name, engine in (("serial", LocalProcesses(1)), ("ray", RayEngine(cpus=1))):
        tuning = plan_tuning("office-home", data, tmp_path / name, "bnm", [0], settings, ["R2P"])
        open_suite(tuning.suite)
        assert run_suite(tuning.suite, engine, Display(quiet=True), TuningFiles(tuning)) == 0
    chosen = [(tmp_path / name / "tuned.yaml").read_text() for name in ("serial", "ray")]
    assert chosen[0] == chosen[1]
    assert "bnm" in chosen[1]


def test_more_than_the_cluster_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="A run asks for 1000 GPU, and the Ray cluster has"):
        RayEngine(gpus=1000)
