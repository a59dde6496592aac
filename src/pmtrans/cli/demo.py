"""``pmtrans demo``: from printed to handwritten digits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pmtrans.cli.completion import complete_method, complete_setting


def demo(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[section.key=value]...",
            autocompletion=complete_setting,
            help="Any setting, such as `train.epochs=4`.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write data, runs and figures.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Same seed, same result.")] = 0,
    method: Annotated[
        str, typer.Option(help="`pmtrans` or any other method.", autocompletion=complete_method)
    ] = "pmtrans",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in `--out`.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Adapt from printed to handwritten digits, on packaged data: nothing is downloaded.

    Example:

        pmtrans demo --out runs/demo --seed 0
    """
    from pmtrans.cli.early import require_method
    from pmtrans.cli.ending import show_summary
    from pmtrans.cli.running import interruptible

    require_method(method)
    from pmtrans.demo import run_demo
    from pmtrans.progress import Reporter

    with interruptible(out):
        summary = run_demo(out, seed, method, overrides or [], Reporter(quiet), overwrite)
    if not quiet:
        show_summary(summary, out)
