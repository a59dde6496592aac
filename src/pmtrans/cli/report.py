"""``pmtrans report``: one HTML page about a run, or a comparison of several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pmtrans.cli.flags import AllowAddress


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="A run folder; several are compared.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file to write: RUN/report.html, or comparison.html beside the first of several runs.",
            show_default=False,
        ),
    ] = None,
    allow_address: AllowAddress = None,
) -> None:
    """Write one self-contained HTML page: what was run, whether it worked, and why.

    Examples:

        pmtrans report runs/phone

        pmtrans report runs/seed0 runs/seed1 runs/seed2 --out seeds.html
    """
    from pmtrans.cli.early import require_run
    from pmtrans.errors import RunError, one_line

    for run in runs:
        require_run(run)
    if out is not None and out.is_dir():
        raise RunError(f"--out {one_line(out)!r} is a folder: name a file, such as {one_line(out / 'report.html')!r}.")
    if len(runs) == 1:
        from pmtrans.progress import Reporter
        from pmtrans.report.page import write_report

        path = write_report(runs[0], out, reporter=Reporter(), allowed=allow_address or ())
    else:
        from pmtrans.report.comparison import write_comparison

        path = write_comparison(runs, out, allowed=allow_address or ())
    typer.echo(str(path))
