"""``benchmarks/demo_methods.py`` on a few steps."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import demo_methods

from pmtrans.data.demo.digits import write_digits
from pmtrans.run.folder import RunFolder
from pmtrans.settings import validate
from pmtrans.texts import read_yaml

SHORT = ["train.max_steps=2", "train.evaluate_every=2", "train.batch_size=8", "selection.game=false"]


def call(out: Path, methods: str, monkeypatch: pytest.MonkeyPatch, *overrides: str) -> None:
    command = ["demo_methods.py", "--out", str(out), "--seeds", "0", "--methods", methods]
    monkeypatch.setattr(demo_methods, "write_digits", partial(write_digits, per_class=8))
    monkeypatch.setattr(sys, "argv", [*command, *SHORT, *overrides])
    demo_methods.main()


def test_all_methods_start_from_one_source_stage_and_the_same_command_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, weights = tmp_path / "out", "model.safetensors"
    call(out, "mcc,cdtrans", monkeypatch)
    source = RunFolder(out / "source_only" / "0")
    trained = source.adapted if source.adapted.is_dir() else source.model
    for method in ("mcc", "cdtrans"):
        run = RunFolder(out / method / "0")
        assert (run.baseline.model / weights).read_bytes() == (trained / weights).read_bytes()
        config = validate(read_yaml(run.config))
        assert config.train.start == "source"
        assert config.method["label_smoothing"] == 0.1, "one for all, whatever the method's own is"
    written = source.summary.stat().st_mtime_ns
    first = capsys.readouterr().out

    call(out, "mcc,bnm,fixbi", monkeypatch)
    assert source.summary.stat().st_mtime_ns == written, "nothing is done twice"
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == first.splitlines()[0]
    rows = {line.split("`")[1]: line for line in lines if line.startswith("| `")}
    assert rows.keys() == {"source_only", "mcc", "bnm", "fixbi"}
    assert rows["mcc"] in first
    assert rows["source_only"].endswith("| +0.0 | +0.0 | 1 |")
    assert any("fixbi" in line and "not reproduced" in line for line in lines)
    assert (out / "table.md").read_text(encoding="utf-8").splitlines() == lines

    with pytest.raises(SystemExit):
        call(out, "mcc", monkeypatch, "train.learning_rate=0.5")
    refused = "- failed: source_only, seed 0: "  # other settings in the same folder
    assert refused in capsys.readouterr().out
    assert (out / "table.md").read_text(encoding="utf-8").splitlines() == lines, "what was found stays"
