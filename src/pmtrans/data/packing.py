"""Pack a folder of images into tar shards: few large files, which a cluster's disks and object stores are made for.

Every shard appears whole or not at all, and its bytes depend on the images and the options alone, so an interrupted
packing is resumed shard by shard and ends with the same files.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from PIL import Image

from pmtrans.data.image import UnreadableImage, load_image
from pmtrans.data.reading.folders import read_folder
from pmtrans.data.reading.listing import Row
from pmtrans.data.reading.shard_index import shard_indexes
from pmtrans.data.reading.shards import PACK, packed_shards
from pmtrans.data.tar_writer import add_file, file_stem, tar_file
from pmtrans.errors import DataError, RunError, one_line
from pmtrans.files import run_lock, settle, write_atomically, write_json
from pmtrans.machine import cores
from pmtrans.signals import StopRequest
from pmtrans.texts import TextError, read_json

PLAN = ".pack.json"  # what a packing that was begun is to give
_AT_ONCE = 64  # images in memory
_JPEG = (".jpg", ".jpeg", ".jpe", ".jfif")
_QUALITY = 95


@dataclass(frozen=True)
class PackOptions:
    """What the shards depend on besides the images. ``size``: the longest that the shorter side may be."""

    images_per_shard: int = 1000
    size: int | None = None
    unlabelled: bool = False
    skip_bad: bool = False


@dataclass
class Packed:
    """The numbers for the message at the end."""

    shards: list[str]
    found: int  # images in the folder
    images: int = 0  # in the shards
    kept: int = 0  # shards that were there from before an interruption


def pack_folder(
    folder: Path,
    out: Path,
    options: PackOptions,
    overwrite: bool = False,
    stop: StopRequest | None = None,
    advance: Callable[[int], None] = lambda images: None,
) -> Packed:
    """Write the shards of ``folder`` to ``out``; the same call resumes."""
    rows = read_folder(folder).rows
    base = os.path.join(folder, "")
    names = [row.path[len(base) :].replace(os.sep, "/") for row in rows]
    digits = max(3, len(str((len(rows) - 1) // options.images_per_shard)))
    starts = range(0, len(rows), options.images_per_shard)
    stem = file_stem(folder.resolve().name) or "shard"
    shards = [f"{stem}-{number:0{digits}d}.tar" for number in range(len(starts))]
    plan: dict[str, object] = {"fingerprint": _fingerprint(rows, names, options), "shards": shards}
    _make_folder(out)
    with run_lock(out):
        settle(out)
        _agree(out, plan, overwrite)
        packed = Packed(shards, len(rows))
        for start, shard in zip(starts, shards, strict=True):
            part = slice(start, start + options.images_per_shard)
            if (out / shard).is_file():
                packed.kept += 1
            else:
                write_atomically(out / shard, _writer(rows[part], names[part], options))
            advance(len(rows[part]))
            if stop is not None:
                stop.check()
        indexes = shard_indexes([str(out / shard) for shard in shards])  # what a first reader would wait for
        packed.images = sum(len(index.names) for index in indexes)
        write_json(out / PACK, {**plan, **asdict(options), "images": packed.images})
        (out / PLAN).unlink(missing_ok=True)
    return packed


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"--out {one_line(out)!r} cannot be made: {error.strerror}.") from None


def _agree(out: Path, plan: Mapping[str, object], overwrite: bool) -> None:
    """Refuse a folder that holds anything but a part of this very pack, or empty it of the other one."""
    known = next((out / name for name in (PACK, PLAN) if (out / name).is_file()), None)
    if known is not None and not overwrite and _fingerprint_in(known) == plan["fingerprint"]:
        return
    others = sorted(path.name for path in out.glob("*.tar"))
    if others or known is not None:
        if not overwrite:
            raise RunError(
                f"{one_line(out)!r} holds other shards ({one_line(others[0]) if others else known}): "
                "choose another --out, or --overwrite them."
            )
        for name in {*others} & {*(_shards_in(known) if known else ())}:
            (out / name).unlink()
        for name in (PACK, PLAN):
            (out / name).unlink(missing_ok=True)
        if left := sorted(path.name for path in out.glob("*.tar")):
            raise RunError(f"{one_line(out)!r}: {one_line(left[0])} was not written by pack: remove it yourself.")
    write_json(out / PLAN, plan)


def _fingerprint_in(known: Path) -> object:
    try:
        return read_json(known, dict[str, object]).get("fingerprint")
    except (OSError, TextError):
        return None


def _shards_in(known: Path) -> list[str]:
    try:
        if known.name == PACK:
            return [os.path.basename(shard) for shard in packed_shards(known.parent)]
        return [str(name) for name in read_json(known, dict[str, object])["shards"]]
    except (OSError, TextError, DataError, KeyError, TypeError):
        return []


def _fingerprint(rows: Sequence[Row], names: Sequence[str], options: PackOptions) -> str:
    """Options, names and labels, sizes and times: an image that changes during an interruption begins anew."""
    digest = hashlib.blake2b(json.dumps(asdict(options)).encode(), digest_size=16)
    for row, name in zip(rows, names, strict=True):
        try:
            status = os.stat(row.path)
            known = (status.st_size, status.st_mtime_ns)
        except OSError:
            known = (-1, -1)
        digest.update(repr((name, row.label, known)).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _writer(rows: Sequence[Row], names: Sequence[str], options: PackOptions) -> Callable[[Path], None]:
    def write(temporary: Path) -> None:
        labelled: set[str] = set()
        with tar_file(temporary) as shard, ThreadPoolExecutor(cores()) as pool:
            for start in range(0, len(rows), _AT_ONCE):
                part = rows[start : start + _AT_ONCE]
                contents = pool.map(lambda row: _content(row.path, options), part)
                for row, name, content in zip(part, names[start : start + _AT_ONCE], contents, strict=True):
                    if isinstance(content, UnreadableImage):
                        if not options.skip_bad:
                            raise DataError(f"{content}. Fix or remove it, or pack without such images: --skip-bad.")
                        continue
                    packed_name = name + content.suffix
                    key = os.path.splitext(packed_name)[0]
                    add_file(shard, packed_name, content.data)
                    if row.label is not None and not options.unlabelled and key not in labelled:
                        labelled.add(key)
                        add_file(shard, f"{key}.cls", row.label.encode("utf-8", "surrogateescape"))

    return write


@dataclass(frozen=True)
class _Content:
    data: bytes
    suffix: str = ""  # added to the name of an image that has another format than before


def _content(path: str, options: PackOptions) -> _Content | UnreadableImage:
    """The bytes of a file; if it is larger than asked for, those of its image, upright and in RGB, at that size."""
    try:
        if not os.path.isfile(path):
            return UnreadableImage(path, "not a regular file" if os.path.exists(path) else "no such file")
        if options.size is None:
            with open(path, "rb") as file:
                return _Content(file.read())
        image = load_image(path)
        if min(image.size) <= options.size:
            with open(path, "rb") as file:
                return _Content(file.read())
    except UnreadableImage as error:
        return error
    except FileNotFoundError:
        return UnreadableImage(path, "no such file")
    scale = options.size / min(image.size)
    small = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
    suffix = os.path.splitext(path)[1].lower()
    buffer = io.BytesIO()
    if suffix in _JPEG:
        small.save(buffer, "JPEG", quality=_QUALITY, subsampling=0)
        return _Content(buffer.getvalue())
    small.save(buffer, "PNG")
    return _Content(buffer.getvalue(), "" if suffix == ".png" else ".png")
