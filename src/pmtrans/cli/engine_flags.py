"""The flags that say where work is done: runs of ``bench`` and ``study``, images of ``predict`` and ``check``."""

from __future__ import annotations

from typing import Annotated

import typer

from pmtrans.errors import ConfigError, one_line


def _known(engine: str) -> str:
    if engine not in ("local", "ray"):
        raise ConfigError(f"--engine {one_line(engine)!r} is neither local nor ray.")
    return engine


Parallel = Annotated[int, typer.Option(min=1, help="Runs at a time on this machine; the cores are shared.")]
EngineName = Annotated[
    str, typer.Option(callback=_known, help="`local`, or `ray`: a cluster that can read the data and --out.")
]
ImagesEngineName = Annotated[
    str, typer.Option(callback=_known, help="`local`, or `ray`: a cluster that can read the images, and the model.")
]
RayAddress = Annotated[
    str | None, typer.Option(help="Address of a Ray cluster; default: start a local one.", show_default=False)
]
Cpus = Annotated[float, typer.Option(help="Ray: CPUs per run.")]
Gpus = Annotated[float, typer.Option(help="Ray: GPUs per run, such as 0.5.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but the table.")]
