"""``pmtrans settings``: what can be given as ``section.key=value``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pmtrans.cli.completion import complete_key

if TYPE_CHECKING:
    from rich.table import Table

    from pmtrans.settings_reference import Setting


def settings(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A section, a key, a method, or a part of a key.",
            autocompletion=complete_key,
            show_default=False,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON array on stdout.")] = False,
) -> None:
    """What can be set: every key with its values, its default and what it does.

    A key is given to `pmtrans train` as it is printed here: `train.clip=1.0`.

    Examples:

        pmtrans settings                  # the sections and the methods

        pmtrans settings train            # a section

        pmtrans settings train.clip       # a key

        pmtrans settings pmtrans          # the options of a method

        pmtrans settings warmup --json    # every key with `warmup` in it
    """
    from pmtrans.settings_reference import all_settings, find_settings

    found = all_settings() if name is None else find_settings(name)
    if json:
        import json as encoder
        from dataclasses import asdict

        typer.echo(encoder.dumps([asdict(setting) for setting in found], ensure_ascii=True))
        return
    from rich.console import Console

    Console(emoji=False).print(_overview(found) if name is None else _table(found))


def _overview(found: list[Setting]) -> Table:
    """Sections with the names of their keys, and the names of the methods."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from pmtrans.settings_reference import section_titles

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("NAME", no_wrap=True)
    table.add_column("what it holds")
    methods = [name for name in section_titles() if name.startswith("method.")]
    for setting in found:
        if not setting.section:
            table.add_row(Text(setting.key), Text(f"{setting.description}\n"))
    for section, title in section_titles().items():
        if section and section not in methods:
            keys = [setting.key.removeprefix(f"{section}.") for setting in found if setting.section == section]
            table.add_row(Text(section), Text(f"{title}\n{', '.join(keys)}\n"))
    names = ", ".join(name.removeprefix("method.") for name in methods)
    table.add_row(Text("a method"), Text(f"Its options, given as method.KEY=VALUE.\n{names}"))
    return table


def _table(found: list[Setting]) -> Table:
    """One row a key; methods whose option is the same share a row."""
    from dataclasses import replace

    from rich import box
    from rich.table import Table
    from rich.text import Text

    methods: dict[str, list[str]] = {}  # by the row that they share
    rows: dict[str, Setting] = {}
    for setting in found:
        row = repr(replace(setting, section=""))
        rows[row] = setting
        methods.setdefault(row, []).append(setting.section.removeprefix("method."))
    one_section = len({setting.section for setting in found}) == 1
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("key", no_wrap=True)
    table.add_column("default", overflow="fold")
    table.add_column("what it does, and its values", ratio=1)
    for row, setting in rows.items():
        text = Text(setting.description + "\n")
        text.append(setting.kind_and_range, style="cyan")
        if setting.section.startswith("method.") and not (one_section and len(found) > 1):
            text.append(f"\nof {', '.join(methods[row])}", style="dim")
        table.add_row(Text(setting.key), Text(setting.default_text), text)
    return table
