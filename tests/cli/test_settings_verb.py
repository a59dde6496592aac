from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from pmtrans.cli import app, main
from pmtrans.methods import METHODS


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["settings", *arguments], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_without_a_name_all_sections_keys_and_methods() -> None:
    words = shown().replace(",", " ").split()
    for word in ("seed", "data", "backbone", "train", "selection", "method", "crop_ratio", "head_ratio", *METHODS):
        assert word in words


@pytest.mark.parametrize("name", [None, "train", "backbone", "pmtrans", "ssrt", "head", "method"])
def test_80_columns_are_enough_and_no_key_is_cut(name: str | None) -> None:
    text = shown(*([] if name is None else [name]))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "…" not in text
    if name == "train":
        assert "train.checkpoint_activations" in text


def test_a_key_has_its_default_range_and_description() -> None:
    text = shown("train.clip")
    assert "train.clip   5.0" in text
    assert "largest gradient norm" in text
    assert "float, >= 0" in text
    assert "train.epochs" not in text


def test_a_part_of_a_key_names_the_methods_that_have_it() -> None:
    text = shown("smoothing")
    assert "of ssrt, cdtrans, tvt, mcc, mic" in " ".join(text.split())
    having = [name for name, entry in METHODS.items() if "label_smoothing" in entry.options.model_fields]
    assert 1 < text.count("method.label_smoothing") < len(having)


def test_json_holds_the_rows() -> None:
    (clip,) = json.loads(shown("train.clip", "--json"))
    assert clip == {
        "section": "train",
        "key": "train.clip",
        "kind": "float",
        "default": 5.0,
        "range": ">= 0",
        "description": clip["description"],
    }
    rows = json.loads(shown("--json"))
    assert {row["section"] for row in rows} >= {"", "data", "train", *(f"method.{name}" for name in METHODS)}


def test_an_unknown_name_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["pmtrans", "settings", "train.clp\n\x1b[31m"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "error: Unknown setting 'train.clp\\\\n\\\\x1b[31m'. Did you mean 'train.clip'?\n"


def test_a_section_does_not_wait_for_torch() -> None:
    code = """
import sys
from pmtrans.cli import main
sys.argv = ["pmtrans", "settings", "train"]
try:
    main()
finally:
    print("torch" in sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "train.clip" in done.stdout
    assert done.stderr == "False\n"
