"""An option that is given twice is refused by every verb: the last one would win without a word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pmtrans.cli import app
from pmtrans.errors import ConfigError, DataError
from pmtrans.settings import load_config


def _commands(group: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*names, name))
        else:
            yield (*names, name), command


COMMANDS = dict(_commands(typer.main.get_command(app)))


def _refused(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert isinstance(result.exception, ConfigError), result.output
    return str(result.exception)


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_every_single_valued_option_of_every_verb_is_taken_once(
    names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a verb that does not refuse would write there
    options = [
        option.opts[0]
        for option in COMMANDS[names].params
        if option.param_type_name == "option" and not option.multiple and not option.is_flag
    ]
    for option in options:
        assert _refused(*names, option, "1", option, "1") == f"{option} is given twice: it takes one value."


def test_on_and_off_contradict_each_other() -> None:
    assert "--baseline/--no-baseline" in _refused("train", "--out", "x", "--baseline", "--no-baseline")
    assert "--target" in _refused("train", "--out", "x", "--target", "a", "--target=b")


def test_what_may_be_repeated_still_may() -> None:
    sources = ["train", "--source", "nowhere", "--source", "elsewhere", "--target", "x", "--out", "y"]
    assert isinstance(CliRunner().invoke(app, sources).exception, DataError)
    result = CliRunner().invoke(app, ["bench", "figures", "--runs", "a", "--runs", "b", "--out", "c", "--help"])
    assert result.exit_code == 0
    assert CliRunner().invoke(app, ["train", "--quiet", "--quiet", "--help"]).exit_code == 0


def test_of_a_setting_the_last_value_counts_and_two_keys_of_one_mapping_both_do() -> None:
    config = load_config(None, ["train.epochs=1", "train.clip=1", "train.epochs=3"], {})
    assert (config.train.epochs, config.train.clip) == (3, 1)
    nested = load_config(None, ["backbone.options.depth=1", "backbone.options.embed_dim=8"], {})
    assert nested.backbone.options == {"depth": 1, "embed_dim": 8}


def test_every_verb_takes_its_run_as_first_argument_and_label_these_also_as_an_option() -> None:
    for verb in ("adapt", "evaluate", "export", "label-these", "predict", "serve", "watch"):
        first = next(param for param in COMMANDS[verb,].params if param.param_type_name == "argument")
        assert first.metavar == "RUN", verb
    assert COMMANDS["report",].params[0].metavar == "RUN..."
    for run in (["nowhere"], ["--run", "nowhere"]):
        result = CliRunner().invoke(app, ["label-these", *run, "--out", "x"])
        assert str(result.exception) == "'nowhere' is not a run folder: there is no such folder."
    assert _refused("label-these", "a", "--run", "b", "--out", "x") == "RUN is given twice: it takes one value."
    assert _refused("label-these", "--out", "x") == "Name the run: pmtrans label-these RUN --out DIR."


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_help_is_not_cut_at_80_columns_and_names_no_parameter_of_ours(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 80)
    text = CliRunner().invoke(app, [*names, "--help"]).output
    assert "Usage" in text
    assert not [line for line in text.splitlines() if "…" in line or len(line) > 80]
    for argument in COMMANDS[names].params:
        if argument.param_type_name == "argument":
            assert argument.metavar, argument.name  # an error would say: Missing argument 'paths'
