"""``pmtrans methods``: the names that ``--method`` accepts."""

from __future__ import annotations

from typing import Annotated

import typer


def methods(
    json: Annotated[bool, typer.Option("--json", help="One JSON array on stdout.")] = False,
) -> None:
    """List every method: its name, its paper, and what one training step costs.

    Example:

        pmtrans methods --json
    """
    import json as encoder

    from pmtrans.methods import METHODS

    keys = ("title", "paper", "year", "needs")
    rows = [{"name": name, **{key: getattr(entry.method, key) for key in keys}} for name, entry in METHODS.items()]
    if json:
        typer.echo(encoder.dumps(rows, ensure_ascii=True))
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        typer.echo(f"{row['name']:{width}}  {row['paper']} ({row['year']})")
        typer.echo(f"{'':{width}}  needs {row['needs']}")
