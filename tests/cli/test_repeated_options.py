"""A value that is given twice is refused by every verb: the last one would win without a word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pmtrans.cli import app
from pmtrans.errors import ConfigError, DataError


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
    settings = ["train.epochs=1", "train.epochs=2"]  # a script may add to a common list
    assert CliRunner().invoke(app, ["train", "--quiet", "--quiet", *settings, "--help"]).exit_code == 0
