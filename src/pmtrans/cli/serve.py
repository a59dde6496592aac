"""``pmtrans serve``: the model over HTTP."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pmtrans.cli.flags import Device
from pmtrans.serving.limits import SHARED_METRICS, Limits

if TYPE_CHECKING:
    from pmtrans.inference.backends import Backend

DEFAULTS = Limits()


class BackendName(str, Enum):
    """What computes the answers."""

    eager = "eager"
    onnx = "onnx"
    onnx_int8 = "onnx-int8"
    openvino = "openvino"


def serve(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a model folder.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    host: Annotated[
        str, typer.Option(help="The address to listen on; loopback by default, as there is no TLS.")
    ] = "127.0.0.1",
    backend: Annotated[
        BackendName,
        typer.Option(help="`eager` (torch), `onnx` (ONNX Runtime), `onnx-int8` (8-bit weights: smaller, and some "
                     "answers change) or `openvino`. All but `eager` run on the CPU; the file is made at the start "
                     "and checked against the model."),
    ] = BackendName.eager,
    workers: Annotated[
        int,
        typer.Option(min=1, max=256, help="Processes behind the port, each with a model of its own and its part of the "
                     "cores. Limits of connections hold for each."),
    ] = 1,
    api_keys: Annotated[
        Path | None,
        typer.Option(help="A file of keys, one per line (`chmod 600`); `#` begins a comment. Predictions and "
                     "`/metrics` then need `Authorization: Bearer KEY` or `X-API-Key: KEY`.", show_default=False),
    ] = None,
    abstain_below: Annotated[
        float, typer.Option(min=0, max=1, help="Abstain where the calibrated probability is below this.")
    ] = 0.0,
    max_images: Annotated[int, typer.Option(min=1, help="Images in one request.")] = DEFAULTS.images,
    max_megabytes: Annotated[
        float, typer.Option(min=0.001, max=100_000, help="Size of one image.")
    ] = DEFAULTS.image_bytes / 1e6,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Images of all requests in one forward pass.")
    ] = DEFAULTS.batch_size,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Another name that the server answers to, such as a proxy's; may be repeated.", show_default=False
        ),
    ] = None,
    device: Device = None,
) -> None:  # fmt: skip
    """Serve the model over HTTP, with a page to drop images on. Ctrl-C stops it after the open requests.

    `POST /predict` (multipart field `images`), `GET /health` (alive), `GET /ready` (the model predicts),
    `GET /metrics` (Prometheus), `GET /docs`.

    Example:

        pmtrans serve runs/phone --port 8000

        pmtrans serve runs/phone --backend openvino --workers 4 --api-keys keys.txt
    """
    import os
    from tempfile import TemporaryDirectory

    from pmtrans.cli.early import require_device, require_model
    from pmtrans.errors import ConfigError

    require_model(run)
    require_device(device)
    os.environ.pop(SHARED_METRICS, None)  # of another program
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import python_multipart  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise ConfigError("serve needs an extra: pip install 'pmtrans[serve]'") from None
    from pmtrans.serving.keys import read_keys

    keys = None
    if api_keys is not None:
        keys, warnings = read_keys(api_keys)
        for warning in warnings:
            typer.echo(f"warning: {warning}.", err=True)
    if backend is not BackendName.eager and device not in (None, "cpu"):
        raise ConfigError(f"--backend {backend.value} runs on the CPU: leave out --device, or use --backend eager.")
    from pmtrans.serving.server import Front, listen, serve_until_stopped
    from pmtrans.serving.service import ServiceSettings

    listen(host, port).close()  # a port that is taken is told before anything is loaded
    limits = Limits(images=max_images, image_bytes=int(max_megabytes * 1e6), batch_size=batch_size)

    def announce(address: str) -> None:
        several = f" with {workers} workers" if workers > 1 else ""
        typer.echo(f"Serving at {address}{several} (Ctrl-C stops)")
        if host in ("127.0.0.1", "::1", "localhost"):
            return
        if keys is None:
            typer.echo(f"warning: no authentication: anyone who can reach {address} can use this service.", err=True)
        else:
            typer.echo("warning: no TLS: whoever sees the traffic sees the API keys and the images.", err=True)

    with TemporaryDirectory(prefix="pmtrans-serve-", ignore_cleanup_errors=True) as name:  # mode 0700
        folder = Path(name)
        files = _write_backend(run, backend, folder)
        settings = ServiceSettings(run, device, files, limits, abstain_below, keys, workers)
        if workers > 1:
            from pmtrans.serving.workers import serve_with_workers

            serve_with_workers(settings.make, workers, Front(host, tuple(allow_host or ())), port, folder, announce)
        else:
            service = settings.make()
            serve_until_stopped(service.app, host, port, announce, allow_host or (), metrics=service.metrics)


def _write_backend(run: Path, chosen: BackendName, folder: Path) -> tuple[Backend, Path] | None:
    """The run's file for another runtime, with the result of the parity check as a line."""
    if chosen is BackendName.eager:
        return None
    from pmtrans.errors import one_line
    from pmtrans.inference.backends import require_backend, write_backend
    from pmtrans.inference.export.images import images_for_parity
    from pmtrans.inference.predictor import load

    backend: Backend = chosen.value
    require_backend(backend)
    images, origin = images_for_parity(run, None)
    file, parity = write_backend(load(run, "cpu").trained, backend, folder, images)
    typer.echo(f"Backend {backend}, checked on {one_line(origin)}: {parity}.", err=True)
    return backend, file
