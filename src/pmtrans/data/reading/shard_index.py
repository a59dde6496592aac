"""What lies where in a tar shard: read once from its headers, kept in the user's cache while the shard stays the same.

A shard follows the conventions of WebDataset: ``NAME.jpg`` is an image, and ``NAME.cls`` (text or a number) or
``NAME.json`` holds its label. Of a name with several dots, the part before the first one is its key there too.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pmtrans.addresses import absolute, open_filesystem, reached
from pmtrans.data.image import is_image_name
from pmtrans.data.packed import HEADER, has_known_format, header_size, packed_path, remote_version
from pmtrans.data.reading.folders import is_hidden_image, is_leftover_name
from pmtrans.data.reading.left_out import LeftOut
from pmtrans.data.reading.listing import canonical_label
from pmtrans.errors import DataError, one_line
from pmtrans.files import write_atomically
from pmtrans.machine import cache_folder
from pmtrans.texts import MAX_IMAGES, TextError, is_text, parse_json

try:
    import fcntl
except ImportError:  # Windows: two processes may make the same index, and one of them wins
    fcntl = None  # type: ignore[assignment]

LABEL_KEYS = ("class_name", "label_name", "class", "category", "cls", "label", "class_id", "label_id", "target", "y")
_FORMAT = 3
_MAX_LABEL = 1 << 20  # bytes of a .cls or .json
_MAX_NAME = 1 << 16
_READ_AHEAD = 1 << 20
_AT_ONCE = 8  # shards: what they wait for is the network
_LONG_NAME, _LONG_LINK, _EXTENDED, _GLOBAL = b"L", b"K", b"x", b"g"
_FILES, _FOLDERS, _LINKS = (b"0", b"\0", b"7"), (b"5",), (b"1", b"2")


@dataclass(frozen=True)
class ShardIndex:
    """The images of one shard, in its order. ``labels`` are as they were written, None where there is none."""

    names: list[str]
    labels: list[str | None]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    left_out: LeftOut = field(default_factory=LeftOut)

    def paths(self, shard: str) -> list[str]:
        """The path of every image, for ``data.packed``."""
        places = zip(self.offsets.tolist(), self.lengths.tolist(), self.names, strict=True)
        return [packed_path(shard, offset, length, name) for offset, length, name in places]


def index_folder() -> Path:
    """Where indexes and what was made of Parquet files are kept."""
    return cache_folder() / "shards"


def shard_indexes(shards: Sequence[str], label_key: str | None = None) -> list[ShardIndex]:
    """The index of every shard: from the cache if it is of this very shard, else made, by one process at a time."""
    folder = index_folder()
    kept = [folder / f"{_digest(absolute(shard), label_key or '')}.index" for shard in shards]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        versions = list(pool.map(shard_version, shards))
        found = [_load(*pair) for pair in zip(kept, versions, strict=True)]
        if None not in found:
            return [index for index in found if index is not None]
        with one_at_a_time(folder / "making"):  # another process may make them now, and this one then finds them

            def load_or_make(shard: str, path: Path, version: str) -> ShardIndex:
                return _load(path, version) or _make(shard, path, version, label_key)

            return list(pool.map(load_or_make, shards, kept, versions))


def _make(shard: str, kept: Path, version: str, label_key: str | None) -> ShardIndex:
    with _opened(shard) as (file, size):
        index = read_index(file, size, shard, label_key)
    if shard_version(shard) != version:
        raise DataError(f"{one_line(shard)}: it changed while it was read: repeat the command")
    with suppress(OSError):  # no place for a cache: it is made again next time
        kept.parent.mkdir(parents=True, exist_ok=True)
        _store(kept, index, version)
    return index


def shard_version(shard: str) -> str:
    """What changes when a file does: its size and time, or what the other system says of it."""
    if "://" in shard:
        return remote_version(shard)
    try:
        status = os.stat(shard)
    except OSError as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise DataError(f"{one_line(shard)}: {reason}") from None
    if not os.path.isfile(shard):
        raise DataError(f"{one_line(shard)}: not a regular file")
    return f"size={status.st_size} mtime={status.st_mtime_ns}"


def read_index(file: IO[bytes], size: int, shard: str, label_key: str | None = None) -> ShardIndex:
    """Read the headers of a tar of ``size`` bytes; a tar that ends too early, or is none, is one line."""
    names: list[str] = []
    places: list[tuple[int, int]] = []
    labels: dict[str, str | None] = {}
    label_files: list[str] = []
    left_out = LeftOut()
    for name, offset, length in _members(file, size, shard):
        if is_leftover_name(name):
            if is_hidden_image(name):
                left_out.add("hidden images", name)
            continue
        if is_image_name(name):
            names.append(name)
            places.append((offset, length))
            if len(names) > MAX_IMAGES:
                raise DataError(f"{one_line(shard)}: more than {MAX_IMAGES} images: divide it")
            continue
        left_out.look_at(os.path.basename(name))
        stem, suffix = os.path.splitext(name)
        suffix = suffix.lower()
        if suffix not in (".cls", ".json"):
            continue
        label_files.append(stem + suffix)
        if suffix == ".cls" and length > _MAX_LABEL:
            said = f"a label of {length} bytes, {_MAX_LABEL} allowed"
            raise DataError(f"{one_line(shard)}: {one_line(name, 80)}: {said}")
        if length <= _MAX_LABEL and (suffix == ".cls" or labels.get(stem) is None):
            file.seek(offset)
            content = file.read(length)
            label = _text_label(content, name) if suffix == ".cls" else _json_label(content, name, shard, label_key)
            if label is not None and not is_text(label):
                raise DataError(f"{one_line(shard)}: {one_line(name, 80)}: {one_line(label, 60)!r} is no class name")
            if suffix == ".cls" or label is not None:
                labels[stem] = label
    for of_one_kind in (names, label_files):
        if len(set(of_one_kind)) < len(of_one_kind):
            twice = next(name for name, count in Counter(of_one_kind).items() if count > 1)
            raise DataError(f"{one_line(shard)}: holds {one_line(twice, 80)} twice")
    found = np.array(places, dtype=np.int64).reshape(-1, 2)
    return ShardIndex(
        names,
        [_label_of(name, labels) for name in names],
        found[:, 0].copy(),
        found[:, 1].copy(),
        left_out,
    )


def _label_of(name: str, labels: dict[str, str | None]) -> str | None:
    stem = os.path.splitext(name)[0]
    if stem in labels:
        return labels[stem]
    folder, slash, last = name.rpartition("/")
    return labels.get(folder + slash + last.partition(".")[0])


def _members(file: IO[bytes], size: int, shard: str) -> Iterator[tuple[str, int, int]]:
    """(name, offset of the content, its length) of every regular file in a tar."""
    position, long_name = 0, None
    while True:
        file.seek(position)
        header = file.read(HEADER)
        if position == 0 and header[:2] == b"\x1f\x8b":
            raise DataError(f"{one_line(shard)}: a compressed tar cannot be read at random: unpack it with gunzip")
        if len(header) < HEADER:
            raise DataError(f"{one_line(shard)}: truncated: it ends after {size} bytes without the mark of its end")
        if header[0] == 0 and not header.strip(b"\0"):
            while rest := file.read(_READ_AHEAD):
                if rest.strip(b"\0"):
                    after = f"it continues after the mark of its end at byte {position}"
                    raise DataError(f"{one_line(shard)}: {after}: join tars with tar -A")
            return
        length = header_size(header)
        if length < 0 or not _is_valid(header):
            what = "not a tar file" if position == 0 else f"damaged at byte {position}"
            raise DataError(f"{one_line(shard)}: {what}")
        kind, begin = header[156:157], position + HEADER
        name = long_name or _short_name(header)
        if begin + length > size:
            raise DataError(f"{one_line(shard)}: truncated: it ends inside {one_line(name, 80)}")
        if kind in (_LONG_LINK, _GLOBAL):
            pass  # not of the name
        elif kind in (_LONG_NAME, _EXTENDED):
            if length > _MAX_NAME:
                raise DataError(f"{one_line(shard)}: damaged at byte {position}")
            content = file.read(length)
            long_name = os.fsdecode(content.split(b"\0", 1)[0]) if kind == _LONG_NAME else _extended_name(content)
        else:
            long_name = None
            name = name.removeprefix("./")
            if kind not in _FILES + _FOLDERS and _is_read(name):
                how = "pack it with tar --dereference --hard-dereference"
                what = "a link inside it" if kind in _LINKS else "no plain file"
                raise DataError(f"{one_line(shard)}: {one_line(name, 80)} is {what}: {how}")
            if kind in _FILES and not name.endswith("/"):  # the oldest format has no kind for folders
                if ".." in name.split("/") or "\0" in name:
                    raise DataError(f"{one_line(shard)}: {one_line(name, 80)} points outside of it")
                yield name, begin, length
        position = begin + (length + HEADER - 1) // HEADER * HEADER


def _is_read(name: str) -> bool:
    is_label = os.path.splitext(name)[1].lower() in (".cls", ".json")
    return (is_label or is_image_name(name)) and not is_leftover_name(name)


def _is_valid(header: bytes) -> bool:
    try:
        stored = int(header[148:156].strip(b"\0 ") or b"0", 8)
    except ValueError:
        return False
    return stored == sum(header) - sum(header[148:156]) + 8 * 32 and has_known_format(header)


def _short_name(header: bytes) -> str:
    name = header[:100].split(b"\0", 1)[0]
    if header[257:263] == b"ustar\0" and (prefix := header[345:500].split(b"\0", 1)[0]):
        name = prefix + b"/" + name
    return os.fsdecode(name)


def _extended_name(content: bytes) -> str | None:
    """The path of a pax header: lines of ``LENGTH key=value``."""
    while content:
        digits, _, _ = content.partition(b" ")
        if not digits.isdigit() or len(digits) > 9 or not 0 < int(digits) <= len(content):
            return None
        record, content = content[: int(digits)], content[int(digits) :]
        key, _, value = record[len(digits) + 1 :].rstrip(b"\n").partition(b"=")
        if key == b"path":
            return os.fsdecode(value)
    return None


def _text_label(content: bytes, name: str) -> str | None:
    """A class or an id; the name of a folder that the image is in, as ``pack`` writes it, is a class as it is."""
    text = content.decode("utf-8", "surrogateescape")
    return text if text in name.split("/")[:-1] else canonical_label(text)


def _json_label(content: bytes, name: str, shard: str, label_key: str | None) -> str | None:
    try:
        value = parse_json(content)
    except TextError as error:
        raise DataError(f"{one_line(shard)}: {one_line(name, 80)}: {error}") from None
    if isinstance(value, dict):
        keys = (label_key,) if label_key is not None else LABEL_KEYS
        value = next((value[key] for key in keys if value.get(key) is not None), None)
    elif label_key is not None:
        value = None
    return canonical_label(str(value)) if isinstance(value, str | int | float) else None


@contextmanager
def _opened(shard: str) -> Iterator[tuple[IO[bytes], int]]:
    if "://" in shard:
        filesystem, place = open_filesystem(shard)
        size = reached(shard, lambda: int(filesystem.info(place)["size"]))
        opened = reached(shard, lambda: filesystem.open(place, "rb", block_size=_READ_AHEAD * 8))
        with opened as file:
            yield file, size
        return
    with open(shard, "rb", buffering=_READ_AHEAD) as file:
        yield file, os.fstat(file.fileno()).st_size


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _store(path: Path, index: ShardIndex, version: str) -> None:
    labels = sorted({label for label in index.labels if label})
    known = {
        "format": _FORMAT,
        "version": version,
        "labels": labels,
        "left_out": index.left_out.found,
    }
    numbers = {label: number for number, label in enumerate(labels)}
    arrays = {
        "known": np.frombuffer(json.dumps(known).encode(), np.uint8),
        "names": np.frombuffer("\0".join(index.names).encode("utf-8", "surrogateescape"), np.uint8),
        "labels": np.array([-1 if label is None else numbers[label] for label in index.labels], np.int32),
        "offsets": index.offsets,
        "lengths": index.lengths,
    }

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    write_atomically(path, write)


def _load(path: Path, version: str) -> ShardIndex | None:
    """None where there is no index of this version, or a damaged one."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            known: dict[str, Any] = parse_json(stored["known"].tobytes(), dict[str, Any])
            if known["format"] != _FORMAT or known["version"] != version:
                return None
            text = stored["names"].tobytes().decode("utf-8", "surrogateescape")
            names = text.split("\0") if text else []
            texts: list[str | None] = [*known["labels"], None]  # the last one is number -1
            labels = [texts[number] for number in stored["labels"].tolist()]
            left_out = LeftOut({kind: (int(count), str(name)) for kind, (count, name) in known["left_out"].items()})
            index = ShardIndex(names, labels, stored["offsets"], stored["lengths"], left_out)
    except Exception:  # zip, numpy and JSON each have their own way to say that a file is damaged
        return None
    return index if len(names) == len(labels) == len(index.offsets) == len(index.lengths) else None


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Wait until no other process of this machine is inside; where that cannot be, continue without."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError:
        yield
        return
    try:
        if fcntl is not None:
            with suppress(OSError):  # a disk without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
