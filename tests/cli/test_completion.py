"""Methods, recipes and settings complete in a shell, at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pmtrans.cli.completion import option_values
from pmtrans.methods import METHODS

ROOT = Path(__file__).parents[2]
TRIED = """
import os, sys
from pmtrans.cli import main
for line in open(sys.argv[1]):
    words = line.rstrip("\\n").split("|")
    os.environ.update(COMP_WORDS=" ".join(words), COMP_CWORD=str(len(words) - 1))
    sys.argv = ["pmtrans"]
    print("-", flush=True)
    try:
        main()
    except SystemExit:
        pass
heavy = {"torch", "timm", "numpy", "scipy", "sklearn", "matplotlib", "PIL"} & set(sys.modules)
assert not heavy, heavy
"""


def completed(tmp_path: Path, *lines: str) -> list[list[str]]:
    """What bash is offered at the end of each line, whose words are separated by |; in one new process, no torch."""
    (tmp_path / "lines").write_text("\n".join(lines))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "_PMTRANS_COMPLETE": "complete_bash"}
    command = [sys.executable, "-c", TRIED, str(tmp_path / "lines")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [part.split() for part in done.stdout.split("-\n")[1:]]


def test_methods_recipes_and_settings_complete_without_torch(tmp_path: Path) -> None:
    offered = completed(
        tmp_path,
        "pmtrans|train|--method|pm",
        "pmtrans|train|--recipe|small/office-31-d",
        "pmtrans|train|--quiet|train.epochs",
        "pmtrans|train|train.schedule|=|c",  # as bash parts it
        "pmtrans|train|train.schedule|=",
        "pmtrans|train|--method|dann|method.rev",
        "pmtrans|train|method.refit_head|=|",
        "pmtrans|auto|data.target_cl",
        "pmtrans|bench|run|--methods|source_only,mc",
        "pmtrans|settings|train.cli",
    )
    assert offered == [
        ["pmtrans"],
        ["small/office-31-deit-tiny"],
        ["train.epochs="],
        ["cosine", "constant"],
        ["cosine", "inverse", "constant"],
        ["method.reversal=", "method.reversal_images="],
        ["true", "false"],
        ["data.target_classes="],
        ["source_only,mcc", "source_only,mcd"],
        ["train.clip"],
    ]


@pytest.mark.parametrize("name", METHODS)
def test_the_options_that_complete_are_those_of_the_method(name: str) -> None:
    assert sorted(option_values(name)) == sorted(f"method.{key}" for key in METHODS[name].options.model_fields)


def test_values_that_have_a_name_complete_too() -> None:
    values = option_values("pmtrans")
    assert values["method.preset"] == ("best", "paper", "reference")
    assert values["method.positives"] == ("mean", "sum")  # Positives, of another file
    assert values["method.head"] == ("linear", "mlp", "weight_norm", "pair", "mlp_pair")
    assert values["method.information"] == ()
