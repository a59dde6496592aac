"""Two processes with half of each batch are one with the whole: for every method, for both kinds of backbone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import tiny_run
from compiled_steps import losses_and_gradients
from pmtrans.methods import METHODS
from pmtrans.processes.group import Processes
from pmtrans.progress import Reporter
from pmtrans.run.metrics import TIMES, read_metrics
from pmtrans.settings import load_config
from pmtrans.signals import Interrupted
from pmtrans.training.train import train

PROGRAM = [sys.executable, "-m", "pmtrans"]
linux = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="processes are found through /proc")
TWENTY = {"train.max_steps": 20, "train.epochs": 99, "train.evaluate_every": 10}
SWIN = {
    "backbone.name": "swin_tiny_patch4_window7_224",
    "backbone.options": {"depths": [1, 1], "embed_dim": 16, "num_heads": [2, 2], "drop_path_rate": 0.2},
    "data.image_size": 56,
}
VIT = {
    "backbone.options": {"depth": 2, "embed_dim": 24, "num_heads": 2, "drop_path_rate": 0.2},
    "train.evaluate_every": 6,
}
SHARDED = {"train.sharding": "full"}
TWELVE = {"train.max_steps": 12, "train.epochs": 99, "train.evaluate_every": 6}
COPIES_OF_WEIGHTS: dict[str, dict[str, Any]] = {"mic": {}, "ssrt": {"method.tolerance": 0.0}, "fixbi": {}, "cgdm": {}}
CACHED = {"train.accumulate": 2, "train.accumulation": "cached"}
FROZEN = {"train.freeze_blocks": 1}
UNJUDGED = {"data.holdout": 0}  # no validators, which are the same for every method
BOTTLENECK = {"backbone.bottleneck": 8, **UNJUDGED}  # a cluster of such features may tip over
MANIFOLD = {"method.mixing": "manifold_mixup"}
RUNS: dict[str, dict[str, Any]] = {
    "class-token": {**TWENTY, **VIT},
    "pooled": {**TWENTY, **SWIN},
    "manifold mixup": {**VIT, **MANIFOLD},
    "accumulated": {**VIT, "train.accumulate": 2},
    "reused features": {**VIT, "method.reuse_features": True, "method.refresh_steps": 2},
    "cached": {**VIT, **CACHED},
    "recomputed": {**VIT, "train.checkpoint_activations": True},
    "staged": {**VIT, "train.start": "average", "train.baseline": True, "train.baseline_steps": "continued"},
    **{f"method {name}": {**VIT, **UNJUDGED, "method.name": name, "train.start": "probe"} for name in METHODS},
    "sharded class-token": {**TWELVE, **VIT, **SHARDED, "selection.game": True},
    "sharded and cached": {
        **VIT,
        **SHARDED,
        "train.accumulate": 2,
        "train.accumulation": "cached",
    },
    "frozen": {**VIT, **FROZEN},
    "sharded and all frozen": {**VIT, **SHARDED, **FROZEN, "train.freeze_blocks": 2},
    "sharded, frozen and recomputed": {
        **VIT,
        **SHARDED,
        **FROZEN,
        "train.checkpoint_activations": True,
        "train.layer_decay": 0.7,
    },
    "bottleneck": {**VIT, **BOTTLENECK, "train.start": "probe", "train.accumulate": 2},
    "sharded and cached bottleneck": {**SWIN, **SHARDED, **CACHED, **BOTTLENECK, "train.ema": 0.6},
    "adapters": {**VIT, **FROZEN, **CACHED, "train.lora": 3, "train.checkpoint_activations": True},
    "sharded adapters": {**VIT, **SHARDED, "train.lora": 3, "train.ema": 0.6},
    "averaged": {**VIT, "train.ema": 0.6, "data.balance": "classes"},
    "sharded and averaged": {**VIT, **SHARDED, "train.ema": 0.6},
    "sharded pooled": {**TWELVE, **SWIN, **SHARDED},
    **{
        f"sharded {name}": {**VIT, **SHARDED, **UNJUDGED, "method.name": name, **more}
        for name, more in COPIES_OF_WEIGHTS.items()
    },
}
ILL_CONDITIONED = {  # what is rounded is multiplied: by inverses of covariances, by gradients of entropies
    "method ckb": 1e-4,
    "method tvt": 1e-4,
    "bottleneck": 1e-4,  # by deviations of a small batch
    "sharded and cached bottleneck": 1e-4,
}
RESUMED = {**TWELVE, **VIT}
STOP = 7


def settings_of(name: str, home: Path) -> dict[str, Any]:
    return in_home(home, RUNS[name])


def in_home(home: Path, settings: dict[str, Any]) -> dict[str, Any]:
    domains = {"data.source": str(home / "source"), "data.target": str(home / "target")}
    return {**tiny_run.SETTINGS, **domains, "selection.game": False, **settings}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def environment(rank: int, port: int, count: int = 2) -> dict[str, str]:
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), "RANK": str(rank)}
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "LOCAL_RANK": str(rank), **group}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run.write_domains(tmp_path_factory.mktemp("processes"), images=12)


@pytest.fixture(scope="module")
def pair(home: Path) -> Path:
    """All runs, trained by two processes that are started once; two runs are handed over between steps."""
    plan: list[tuple[dict[str, Any], str, int | None]] = [
        (settings_of(name, home), str(home / "two" / name.replace(" ", "-")), None) for name in RUNS
    ]
    (home / "two").mkdir()
    stop = tiny_run.Witness({STOP: lambda: os.kill(os.getpid(), signal.SIGTERM)})
    with pytest.raises(Interrupted):
        train(load_config(None, [], in_home(home, RESUMED)), home / "two" / "begun-whole", stop)
    plan.append((in_home(home, {**RESUMED, **SHARDED}), str(home / "two" / "begun-whole"), None))
    plan.append((in_home(home, {**RESUMED, **SHARDED}), str(home / "two" / "begun-sharded"), STOP))
    (home / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    port = free_port()
    program = [sys.executable, str(Path(__file__).with_name("train_several.py")), str(home / "plan.json")]
    processes = [
        subprocess.Popen(program, env=environment(rank, port), stderr=subprocess.PIPE, text=True) for rank in (0, 1)
    ]
    said = [process.communicate(timeout=900)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    return home / "two"


def numbers(run: Path) -> list[dict[str, float]]:
    lines = read_metrics(run / "metrics.jsonl")
    return [{k: v for k, v in line.items() if k not in TIMES and isinstance(v, float)} for line in lines]


def assert_close_runs(one: Path, two: Path, logged: float = 1e-5) -> None:
    """Losses and all that is logged to ``logged``, the weights as one vector too.

    Not each weight by itself: the bias of the keys has no gradient but rounding, which AdamW makes a step of.
    """
    mine, theirs = numbers(one), numbers(two)
    assert len(mine) == len(theirs) >= 4
    for step, (first, second) in enumerate(zip(mine, theirs, strict=True)):
        wide = {key: 10 * logged if key == "score.dev" else logged for key in second}  # DEV divides by small densities
        assert first.keys() == second.keys()
        for key, value in second.items():
            assert first[key] == pytest.approx(value, rel=wide[key], abs=wide[key]), (step, key)
    my_weights, their_weights = (load_file(run / "model" / "model.safetensors") for run in (one, two))
    difference, length = (
        torch.cat([value.flatten().double() for value in values]).norm()
        for values in ([my_weights[key] - their_weights[key] for key in my_weights], my_weights.values())
    )
    assert difference / length < logged


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_train_what_one_trains(name: str, pair: Path, home: Path) -> None:
    alone = home / "one" / name.replace(" ", "-")
    alone.parent.mkdir(exist_ok=True)
    train(load_config(None, [], settings_of(name, home)), alone, Reporter(quiet=True))
    assert_close_runs(alone, pair / alone.name, ILL_CONDITIONED.get(name, 1e-5))


def test_a_run_resumes_with_and_without_sharding(pair: Path, home: Path) -> None:
    alone = home / "one" / "resumed"
    config = load_config(None, [], in_home(home, RESUMED))
    train(config, alone, Reporter(quiet=True))
    assert_close_runs(alone, pair / "begun-whole")
    assert not (pair / "begun-sharded" / "summary.json").exists()
    going_on = tiny_run.Witness()
    train(config, pair / "begun-sharded", going_on)
    assert f"Resuming pmtrans from step {STOP} of 12." in going_on.said
    assert_close_runs(alone, pair / "begun-sharded")


def test_a_checkpoint_of_a_sharded_run_has_the_form_of_any_other(pair: Path) -> None:
    sharded, whole = (
        load_file(pair / run / "checkpoints" / "step-00000012" / "tensors.safetensors")
        for run in ("sharded-class-token", "begun-whole")
    )
    assert {name: value.shape for name, value in sharded.items()} == {n: v.shape for n, v in whole.items()}


def test_two_processes_hold_half_of_each_block(pair: Path, home: Path) -> None:
    width, depth = 32, 3
    block = 12 * width**2 + 13 * width  # qkv, projection, two layers of 4 x width, their biases, two norms
    small = (3 * 16**2 + 1) * width + 5 * width + width + 2 * width + 3 * (width + 1)  # patches, positions, norm, head
    each = depth * block // 2 + small
    for rank in (0, 1):
        held = json.loads((home / f"held-{rank}.json").read_text(encoding="utf-8"))
        assert held == {"weights": each, "gradients": each, "states": 2 * each}


def long_settings(home: Path) -> dict[str, Any]:
    return {**settings_of("class-token", home), "train.max_steps": 100, "train.evaluate_every": 20}


def command(home: Path, out: Path, *more: str) -> list[str]:
    text = [f"{key}={json.dumps(value)}" for key, value in long_settings(home).items()]
    return ["train", *text, "--out", str(out), *more]


def wait_for_checkpoint(run: Path, process: subprocess.Popen[str]) -> None:
    for _ in range(3000):
        if list((run / "checkpoints").glob("step-*")):
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    raise AssertionError("no checkpoint")


def child_of(process: subprocess.Popen[str], rank: int) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
    for child in map(int, children):
        if f"\0RANK={rank}\0".encode() in b"\0" + Path(f"/proc/{child}/environ").read_bytes():
            return child
    raise AssertionError(f"no process of rank {rank}")


@pytest.fixture(scope="module")
def long_run(home: Path) -> Path:
    """What nothing happened to, in one process."""
    train(load_config(None, [], long_settings(home)), home / "long", Reporter(quiet=True))
    return home / "long"


@linux
def test_a_lost_process_ends_the_run_in_one_line_and_another_number_of_processes_resumes(
    home: Path, long_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    launched = subprocess.Popen(
        [*PROGRAM, *command(home, run, "--processes", "2")], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    wait_for_checkpoint(run, launched)
    os.kill(child_of(launched, 1), signal.SIGKILL)
    _, said = launched.communicate(timeout=120)
    assert launched.returncode == 1, said
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(lines) == 2
    assert "A process of this run was lost" in lines[0]
    assert lines[1] == "error: process 1 of 2 was ended by SIGKILL."
    assert "Traceback" not in said

    going_on = tiny_run.Witness()
    train(load_config(None, [], long_settings(home)), run, going_on)
    assert any(said.startswith("Resuming pmtrans from step") for said in going_on.said)
    assert_close_runs(long_run, run)


@linux
def test_torchrun_starts_all_again_after_one_was_lost(home: Path, long_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=2"]
    launched = subprocess.Popen(
        [*torchrun, "-m", "pmtrans", *command(home, run)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for_checkpoint(run, launched)
    os.kill(child_of(launched, 1), signal.SIGKILL)
    _, said = launched.communicate(timeout=300)
    assert launched.returncode == 0, said
    assert "Resuming pmtrans from step" in said
    assert_close_runs(long_run, run)


def test_a_batch_that_cannot_be_shared_and_a_users_mistake_are_one_line(home: Path, tmp_path: Path) -> None:
    wrong = [*PROGRAM, *command(home, tmp_path / "run", "--processes", "2"), "train.batch_size=5"]
    ended = subprocess.run(wrong, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2
    assert ended.stderr.strip().splitlines()[-1].startswith("error: train.batch_size=5 cannot be shared by 2 processes")
    assert ended.stderr.count("error:") == 1


def test_two_processes_compile_what_one_computes(tmp_path: Path) -> None:
    """Rows are divided inside the compiled pass, and DDP averages its gradients."""
    port = free_port()
    program = [sys.executable, str(Path(__file__).parents[1] / "compiled_steps.py"), str(tmp_path)]
    processes = [
        subprocess.Popen(program, env=environment(rank, port), stderr=subprocess.PIPE, text=True) for rank in (0, 1)
    ]
    said = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    alone = losses_and_gradients(Processes(), compile_it=False)
    for rank in (0, 1):
        found = json.loads((tmp_path / f"compiled-{rank}.json").read_text(encoding="utf-8"))
        assert found["graphs"] > 0  # it was compiled
        for step, expected in zip(found["steps"], alone, strict=True):
            assert step == pytest.approx(expected, rel=1e-4)
