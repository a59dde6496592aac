"""``benchmarks/peers.py`` with the installed pytorch-adapt on a few images."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import peers

from pmtrans.methods import METHODS
from tiny_run import SETTINGS

SHORT = {**SETTINGS, "train.max_steps": 3, "train.start": "source", "train.baseline": True}


def test_peers_start_from_one_source_stage_and_stand_beside_ours(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, record = tmp_path / "out", tmp_path / "peers.json"
    overrides = [f"{key}={json.dumps(value)}" for key, value in SHORT.items()]
    command = ["peers.py", "--source", str(images / "source"), "--target", str(images / "target"), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", [*command, "--json", str(record), "--methods", "cdan,mdd,mcc", *overrides])
    known = dict(METHODS)
    try:
        peers.main()
    finally:
        for name in METHODS.keys() - known.keys():
            del METHODS[name]
    records = json.loads(record.read_text())
    assert [(one["method"], one["library"]) for one in records] == [
        ("source_only", "ours"),
        ("cdan", "ours"),
        ("cdan", "pytorch-adapt"),
        ("mdd", "ours"),  # pytorch-adapt has none
        ("mcc", "ours"),
        ("mcc", "pytorch-adapt"),
    ]
    name = "model.safetensors"
    source = (out / "0" / "source_only" / "model" / name).read_bytes()
    for folder in (out / "0").iterdir():
        if folder.name != "source_only":
            assert (folder / "baseline" / "model" / name).read_bytes() == source, folder.name
    ours, theirs = (load_file(out / "0" / folder / "model" / name) for folder in ("mcc", "pytorch-adapt-mcc"))
    step = {key: float((ours[key] - theirs[key]).abs().max()) for key in ours}
    assert max(step.values()) < 1e-5, "the same loss on the same batches: the same weights"
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("| Method | Modules of |")
    assert len(printed) >= 2 + len(records)


def test_the_table_compares_on_the_same_seeds() -> None:
    def record(library: str, seed: int, last: float) -> dict[str, object]:
        return {"method": "dann", "library": library, "seed": seed, "last": last}

    records = [record("ours", 0, 0.8), record("ours", 1, 0.7), record("tllib", 0, 0.75), record("tllib", 1, 0.75)]
    rows = [line.split(" | ") for line in peers.table(records).splitlines()[2:]]
    assert rows[1][2:4] == ["75.0 ± 0.0", f"0.0 ± {math.sqrt(50):.1f}"]


def test_an_adversary_of_pytorch_adapt_reverses_by_the_published_schedule() -> None:
    torch.manual_seed(0)
    adversary = peers.AdaptAdversary(4, 3, conditional=False)
    f_s, f_t = torch.randn(5, 4, requires_grad=True), torch.randn(5, 4)
    gradients = []
    for step in (0, 1000, 2900):
        (slope,) = torch.autograd.grad(adversary(f_s, f_t, f_s[:, :3], f_t[:, :3], step), f_s)
        gradients.append(float(slope.norm()))
    assert gradients[0] == 0
    assert gradients[2] / gradients[1] == pytest.approx((2 / (1 + math.exp(-2.9)) - 1) / (2 / (1 + math.exp(-1)) - 1))
