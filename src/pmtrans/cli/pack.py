"""``pmtrans pack``: a folder of images as tar shards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def pack(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Images in class folders, or in no folders.")],
    out: Annotated[
        Path, typer.Option(help="Folder of the shards. An interrupted packing in it is resumed.", show_default=False)
    ],
    size: Annotated[
        int | None,
        typer.Option(min=8, help="Scale larger images down: their shorter side, in pixels.", show_default=False),
    ] = None,
    images_per_shard: Annotated[int, typer.Option(min=1, help="Images in a shard.")] = 1000,
    unlabelled: Annotated[bool, typer.Option("--unlabelled", help="Write no labels: folders are not classes.")] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="With --size: leave unreadable images out, and count them.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the shards of another pack in --out.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Pack a folder into tar shards in WebDataset format: NAME.jpg, and its class folder as NAME.cls.

    Without --size the bytes of the images are unchanged, and training gives the same weights from the shards as from
    the folder. The same images and options give the same bytes. Give the folder of the shards, or a pattern of them,
    wherever images are asked for; copy them to s3://, gs:// or a cluster's disk as you like.

    Example:

        pmtrans pack photos/shop --out shards/shop --size 256

        pmtrans train --source 'shards/shop/shop-{000..003}.tar' --target shards/phone --out runs/phone
    """
    from pmtrans.addresses import as_path
    from pmtrans.cli.early import require_data

    require_data("FOLDER", folder)
    folder = as_path(folder)
    from pmtrans.cli.predict import progress
    from pmtrans.cli.running import interruptible
    from pmtrans.data.packing import PackOptions, pack_folder
    from pmtrans.data.reading.folders import list_folder
    from pmtrans.data.reading.left_out import LeftOut
    from pmtrans.errors import DataError, one_line
    from pmtrans.signals import stop_on_signals

    if not folder.is_dir():
        raise DataError(f"{one_line(folder)}: not a folder")
    options = PackOptions(images_per_shard, size, unlabelled, skip_bad)
    left_out = LeftOut()
    images = len(list_folder(folder, left_out))
    if not quiet:
        for warning in left_out.warnings(folder):
            typer.echo(f"warning: {warning}", err=True)
    with interruptible(out), stop_on_signals() as stop, progress(images, quiet) as advance:
        packed = pack_folder(folder, out, options, overwrite, stop, advance)
    if not quiet:
        kept = f", {packed.kept} of them from before" if packed.kept else ""
        unreadable = packed.found - packed.images
        bad = f"; {unreadable} images cannot be read and are left out" if unreadable else ""
        typer.echo(f"{packed.images} images in {len(packed.shards)} shards{kept}{bad}: {one_line(out)}", err=True)
