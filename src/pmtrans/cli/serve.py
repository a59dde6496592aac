"""``pmtrans serve``: the model over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pmtrans.serving.limits import Limits

DEFAULTS = Limits()


def serve(
    run: Annotated[Path, typer.Argument(help="A run folder or a model folder.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    host: Annotated[
        str, typer.Option(help="The address to listen on; loopback by default, as there is no authentication.")
    ] = "127.0.0.1",
    abstain_below: Annotated[
        float, typer.Option(min=0, max=1, help="Abstain where the calibrated probability is below this.")
    ] = 0.0,
    max_images: Annotated[int, typer.Option(min=1, help="Images in one request.")] = DEFAULTS.images,
    max_megabytes: Annotated[float, typer.Option(min=0.001, help="Size of one image.")] = DEFAULTS.image_bytes / 1e6,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Images of all requests in one forward pass.")
    ] = DEFAULTS.batch_size,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Another name that the server answers to, such as a proxy's; may be repeated.", show_default=False
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="`cpu`, `cuda`, `cuda:1`, ...", show_default=False)] = None,
) -> None:
    """Serve the model over HTTP, with a page to drop images on. Ctrl-C stops it once all requests are answered.

    `GET /health`, `POST /predict` (multipart field `images`), `GET /docs`.

    Example:

        pmtrans serve runs/phone --port 8000
    """
    from pmtrans.cli.early import require_model
    from pmtrans.errors import ConfigError

    require_model(run)
    try:
        import fastapi  # noqa: F401
        import python_multipart  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise ConfigError("serve needs an extra: pip install 'pmtrans[serve]'") from None
    from pmtrans.inference.predictor import load
    from pmtrans.serving.app import create_app
    from pmtrans.serving.server import serve_until_stopped

    limits = Limits(images=max_images, image_bytes=int(max_megabytes * 1e6), batch_size=batch_size)
    app = create_app(load(run, device), limits, abstain_below)

    def announce(address: str) -> None:
        typer.echo(f"Serving at {address} (Ctrl-C stops)")
        if host not in ("127.0.0.1", "::1", "localhost"):
            typer.echo(f"warning: no authentication: anyone who can reach {address} can use this service.", err=True)

    serve_until_stopped(app, host, port, announce, allow_host or ())
