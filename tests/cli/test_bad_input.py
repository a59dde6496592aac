"""The real command line, in this process: what is printed, and with which exit code."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pmtrans.cli import main
from pmtrans.settings import load_config


def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["pmtrans", *arguments])
    code = 0
    try:
        main()
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def make(folder: Path) -> str:
    folder.mkdir(parents=True)
    return str(folder)


@pytest.mark.parametrize(
    "case",
    ["missing", "empty", "one-class", "in-use", "unknown-key", "wrong-type", "unknown-model", "no-transformer",
     "weights-misfit", "weights-missing", "pickle", "unknown-method", "no-source"],
)  # fmt: skip
def test_one_line_exit_code_2_and_nothing_is_overwritten(
    case: str, two_domains: tuple[Path, Path], tmp_path: Path, tiny_settings: list[str],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    source, target, out = str(two_domains[0]), str(two_domains[1]), tmp_path / "out"
    extra: list[str] = []
    said = {
        "missing": "there is no such folder", "empty": "no image", "one-class": "only one class",
        "in-use": "is in use",
        "unknown-key": "Did you mean 'train.epochs'", "wrong-type": "train.epochs",
        "unknown-model": "timm has no model",
        "no-transformer": "is not a transformer", "weights-misfit": "does not fit", "weights-missing": "does not exist",
        "pickle": "was refused", "unknown-method": "Unknown method", "no-source": "--source",
    }[case]  # fmt: skip
    if case == "missing":
        target = str(tmp_path / "nowhere")
    elif case == "empty":
        target = make(tmp_path / "empty")
    elif case == "one-class":
        source = make(tmp_path / "single")
        (two_domains[0] / "ant").rename(Path(source) / "ant")
    elif case == "in-use":
        make(out)
        (out / "precious.txt").write_text("keep")
    elif case == "unknown-key":
        extra = ["train.epoch=3"]
    elif case == "wrong-type":
        extra = ["train.epochs=lots"]
    elif case == "unknown-model":
        extra = ["backbone.name=vit_huuge", "backbone.options={}"]
    elif case == "no-transformer":
        extra = ["backbone.name=resnet18", "backbone.options={}"]
    elif case == "weights-misfit":
        save_file({"head.weight": torch.zeros(2, 2)}, tmp_path / "w.safetensors")
        extra = [f"backbone.weights={tmp_path / 'w.safetensors'}"]
    elif case == "weights-missing":
        extra = [f"backbone.weights={tmp_path / 'w.safetensors'}"]
    elif case == "pickle":

        class Evil:
            def __reduce__(self) -> tuple[object, tuple[str]]:
                return Path.touch, (tmp_path / "hacked",)  # type: ignore[return-value]

        torch.save({"x": Evil()}, tmp_path / "w.pth")
        extra = [f"backbone.weights={tmp_path / 'w.pth'}"]
    elif case == "unknown-method":
        extra = ["method.name=pmtranss"]
    arguments = ["train", "--out", str(out), "--target", target, *tiny_settings, *extra]
    if case != "no-source":
        arguments += ["--source", source]
    code, _, error = call(monkeypatch, capsys, *arguments)
    assert code == 2, error
    assert said in error
    assert "Traceback" not in error
    assert len([line for line in error.splitlines() if line.startswith("error: ")]) == 1
    assert not (tmp_path / "hacked").exists()
    if case == "in-use":
        assert [path.name for path in out.iterdir()] == ["precious.txt"]


def test_classes_of_one_domain_only_are_a_warning_and_the_run_continues(
    two_domains: tuple[Path, Path], tmp_path: Path, tiny_settings: list[str],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (two_domains[1] / "cat").rename(two_domains[1] / "dog")
    code, out, error = call(
        monkeypatch, capsys, "train", "--source", str(two_domains[0]), "--target", str(two_domains[1]),
        "--out", str(tmp_path / "run"), *tiny_settings,
    )  # fmt: skip
    assert code == 0
    assert "warning: target has 6 images of 1 classes unknown to the source" in error
    assert "warning: target has no images of 1 source classes" in error
    assert "source only" in out


def test_evaluate_prints_the_three_figures_as_json(
    two_domains: tuple[Path, Path], tmp_path: Path, tiny_settings: list[str],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    import json

    data = ["--source", str(two_domains[0]), "--target", str(two_domains[1]), "--out", str(tmp_path / "run")]
    call(monkeypatch, capsys, "train", *data, "--quiet", *tiny_settings)
    code, out, _ = call(monkeypatch, capsys, "evaluate", str(tmp_path / "run"), "--data", str(two_domains[1]), "--json")
    values = json.loads(out)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert code == 0
    assert values["accuracy"] == pytest.approx(summary[summary["shipped"]])
    assert set(values["per_class"]) == {"ant", "bee", "cat"}
    assert values["per_class_mean"] == pytest.approx(sum(values["per_class"].values()) / 3)


@pytest.mark.parametrize("verb", ["demo", "train", "evaluate"])
def test_every_verb_explains_itself_with_an_example(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(monkeypatch, capsys, verb, "--help")
    assert code == 0
    assert f"pmtrans {verb}" in out.split("Example")[1]


@pytest.mark.parametrize(
    "arguments",
    [["check", "--source", "a", "--target", "b", "--image-size", "4097"], ["demo", "--seed", str(2**63)],
     ["evaluate", "run", "--data", "a", "--workers", "513"], ["predict", "run", "a", "--workers", "513"]],
)  # fmt: skip
def test_numbers_beyond_those_of_the_settings_are_refused_at_once(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, said = call(monkeypatch, capsys, *arguments)
    assert code == 2
    assert not list(tmp_path.iterdir())
    assert re.search("is not in the range|less than or equal to", " ".join(said.replace("│", " ").split()))
    load_config(None, ["data.image_size=4096", f"seed={2**63 - 1}", "data.workers=512"])


def test_memory_that_runs_out_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def no_room() -> None:
        torch.empty(1 << 60)

    monkeypatch.setattr("pmtrans.cli.app", no_room)
    code, _, said = call(monkeypatch, capsys)
    assert (code, said) == (1, "error: Out of memory: take smaller images or smaller batches.\n")
