"""The flag of verbs that read the images which a run names: a received run reaches no other system by itself."""

from __future__ import annotations

from typing import Annotated

import typer

AllowAddress = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ADDRESS",
        help="Read images of the run from this address of another system (`s3://bucket`); may be repeated.",
        show_default=False,
    ),
]
