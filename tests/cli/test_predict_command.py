"""``pmtrans predict`` and ``pmtrans export`` as scripts call them."""

from __future__ import annotations

import csv
import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pmtrans.cli import main

COMMAND = [sys.executable, "-c", "from pmtrans.cli import main; main()"]
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pmtrans", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def model(saved_model: Callable[..., Path]) -> Path:
    return saved_model()


def test_a_dash_is_stdout_and_the_rest_goes_to_stderr(call: Call, model: Path, two_domains: tuple[Path, Path]) -> None:
    source, target = two_domains
    (target / "ant" / "000.png").write_text("broken")
    (target / "ant" / ".001.png").write_text("hidden")
    code, out, err = call("predict", model, target, source / "bee" / "001.png", "--out", "-", "--abstain-below", 0.9)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (code, len(rows)) == (0, 19)
    assert list(rows[0]) == ["path", "class", "probability", "entropy", "abstain", "error"]
    assert rows[0]["error"] == "not an image, or an unsupported format"
    assert rows[-1]["path"].endswith("source/bee/001.png")
    for row in rows[1:]:
        assert row["abstain"] == ("true" if float(row["probability"]) < 0.9 else "false")
    assert "1 could not be read" in err
    assert f"warning: {target}: left out: 1 hidden images, such as .001.png" in err


def test_paths_come_from_stdin_and_quiet_is_quiet(
    call: Call, model: Path, two_domains: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    paths = sorted(two_domains[1].rglob("*.png"), reverse=True)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(map(str, paths)).encode())))
    assert call("predict", model, "-", "--out", tmp_path / "rows.csv", "--quiet", "--workers", 0) == (0, "", "")
    with (tmp_path / "rows.csv").open(newline="") as file:
        assert [row["path"] for row in csv.DictReader(file)] == [str(path) for path in paths]


def test_killed_half_way_and_started_again_gives_the_file_of_one_go(
    call: Call, model: Path, two_domains: tuple[Path, Path], tmp_path: Path
) -> None:
    listed = tmp_path / "many.txt"
    listed.write_text("".join(f"{path}\n" for path in sorted(two_domains[1].rglob("*.png")) * 20))
    arguments = ["predict", str(model), str(listed), "--batch-size", "3", "--workers", "1"]
    out, journal = tmp_path / "rows.csv", tmp_path / ".rows.csv.partial" / "rows.jsonl"
    process = subprocess.Popen([*COMMAND, *arguments, "--out", str(out)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (journal.is_file() and journal.stat().st_size > 5_000):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not out.exists()
    code, _, err = call(*arguments, "--out", out)
    assert code == 0
    assert "360 images" in err
    assert "from before the interruption" in err
    assert call(*arguments, "--out", tmp_path / "whole.csv")[0] == 0
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert sorted(path.name for path in tmp_path.glob("*rows*")) == ["rows.csv"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["predict", "{here}/nothing", "{images}"], "neither a run folder nor a model folder"),
        (["predict", "{model}", "{here}/nothing"], "no such folder or file"),
        (["predict", "{model}", "{images}", "--out", "rows.xlsx"], "the format is one of .csv"),
        (["predict", "{model}", "{images}", "--out", "{here}/model/config.json/rows.csv"], "cannot be written"),
        (["predict", "{model}", "{images}", "--device", "warp"], "take cpu, cuda, mps, xpu"),
        (["export", "{model}", "--format", "torch"], "--out FILE"),
        (["export", "{model}", "--format", "hub"], "--repo ORG/NAME"),
        (["export", "{model}", "--format", "torch", "--int8", "--out", "{here}/x.pt2"], "--format onnx with --int8"),
        (["export", "{model}", "--out", "{here}/x.onnx", "--images", "{here}/nothing"], "no such folder or file"),
        (["export", "{model}", "--format", "torch", "--out", "{here}/x.onnx"], "contradicts the ending"),
        (["export", "{model}", "--out", "{here}/x.bin"], "ends neither in .onnx nor in .pt2"),
        (["export", "{model}", "--out", "{model}/config.json", "--format", "onnx"], "a part of the run itself"),
        (["export", "{model}", "--out", "{here}/x.xml", "--with-preprocessing"], "use ONNX with --with-preprocessing"),
        (["export", "{model}", "--out", "{here}/x.ir", "--format", "openvino"], "OpenVINO opens .xml files only"),
        (["serve", "{model}", "--host", "256.0.0.1"], "Cannot listen"),
        (["serve", "{model}", "--host", "256.0.0.1", "--workers", "2"], "Cannot listen"),
        (["serve", "{model}", "--api-keys", "{here}/no-such-file"], "no-such-file: "),
        (["serve", "{model}", "--backend", "onnx", "--device", "cuda"], "--backend onnx runs on the CPU"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    arguments: list[str], said: str, call: Call, model: Path, two_domains: tuple[Path, Path], tmp_path: Path
) -> None:
    places = {"here": tmp_path, "model": model, "images": two_domains[1]}
    code, out, err = call(*(argument.format(**places) for argument in arguments))
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said in err


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("onnxruntime", ["export", "{model}", "--out", "{here}/x.onnx"], "pmtrans[onnx]"),
        ("openvino", ["export", "{model}", "--out", "{here}/x.xml"], "pmtrans[openvino]"),
        ("fastapi", ["serve", "{model}"], "pmtrans[serve]"),
        ("prometheus_client", ["serve", "{model}"], "pmtrans[serve]"),
        ("openvino", ["serve", "{model}", "--backend", "openvino"], "pmtrans[openvino]"),
        ("pyarrow", ["predict", "{model}", "{here}", "--out", "rows.parquet"], "pmtrans[parquet]"),
    ],
)
def test_a_missing_extra_is_one_line_that_names_it(
    module: str, arguments: list[str], extra: str, call: Call, model: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, module, None)
    code, _, err = call(*(argument.format(model=model, here=tmp_path) for argument in arguments))
    assert (code, err.count("\n")) == (2, 1)
    assert f"pip install '{extra}'" in err


def test_a_port_in_use_is_one_line(call: Call, model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = call("serve", model, "--port", port)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"error: Cannot listen on 127.0.0.1 port {port}: ")


def test_a_reader_that_has_seen_enough_is_no_error(model: Path, two_domains: tuple[Path, Path]) -> None:
    process = subprocess.Popen(
        [*COMMAND, "predict", str(model), str(two_domains[1]), "--batch-size", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read().decode()
    process.stderr.close()
    assert (process.wait(timeout=60), said) == (0, "")


def test_predictions_of_nothing_but_unreadable_files_end_with_1(call: Call, model: Path, tmp_path: Path) -> None:
    for name in ("a.png", "b.jpg"):
        (tmp_path / "broken").mkdir(exist_ok=True)
        (tmp_path / "broken" / name).write_bytes(b"not an image")
    for out in (tmp_path / "rows.csv", "-"):
        code, _, err = call("predict", model, tmp_path / "broken", "--out", out)
        assert code == 1
        assert "none of the 2 images could be read" in err
