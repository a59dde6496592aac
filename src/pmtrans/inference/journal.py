"""Partial results beside the output file, from which a killed ``predict`` resumes.

``.NAME.partial/`` holds one JSON row per finished image. It is used only if model, images and options are the same,
and only up to a whole batch: in a batch of another size the last bits of a probability could differ.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pmtrans.errors import RunError, one_line
from pmtrans.files import refuse_foreign, run_lock, write_json
from pmtrans.texts import TextError, parse_json, read_json

Row = dict[str, Any]


class Journal:
    """The finished rows of one output file, appended batch by batch."""

    def __init__(self, folder: Path, done: int) -> None:
        self.folder = folder
        self.done = done
        self._rows = folder / "rows.jsonl"
        self._file = self._rows.open("ab")

    def append(self, rows: Iterable[Row]) -> None:
        """Flushed at once: a killed process loses nothing that was appended."""
        lines = [json.dumps(row).encode() + b"\n" for row in rows]
        self._file.write(b"".join(lines))
        self._file.flush()
        self.done += len(lines)

    def rows(self) -> Iterator[Row]:
        """All rows, read from disk one at a time."""
        with self._rows.open("rb") as lines:
            for line in lines:
                yield parse_json(line, Row)

    def close(self) -> None:
        self._file.close()


@contextmanager
def open_journal(out: Path, fingerprint: str, batch_size: int) -> Iterator[Journal]:
    """The journal of ``out``, resumed if its fingerprint is the same; deleted at the end, kept after an exception."""
    folder = out.with_name(f".{out.name}.partial")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise RunError(f"{one_line(out.parent)!r} cannot be written: {reason}.") from None
    _refuse_prepared(folder)
    with run_lock(folder):
        stored = folder / "identity.json"
        if not stored.is_file() or _read_fingerprint(stored) != fingerprint:
            (folder / "rows.jsonl").write_bytes(b"")
            write_json(stored, {"identity": fingerprint})
        journal = Journal(folder, _cut_to_whole_batches(folder / "rows.jsonl", batch_size))
        try:
            yield journal
        finally:
            journal.close()
        shutil.rmtree(folder, ignore_errors=True)


def _refuse_prepared(folder: Path) -> None:
    """In a folder that several users share, another one may have made this folder first, or linked it elsewhere."""
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or (os.name == "posix" and status.st_uid != os.geteuid()):
        raise RunError(f"{one_line(folder)!r} is a link or belongs to another user: choose another --out.")
    for entry in folder.iterdir():
        refuse_foreign(entry)


def fingerprint_of(model_folder: Path, paths: Sequence[str], options: dict[str, Any]) -> str:
    """A hash of everything that the rows depend on, except the content of the images."""
    digest = hashlib.blake2b(json.dumps(options, sort_keys=True).encode(), digest_size=16)
    for file in (model_folder / "config.json", model_folder / "model.safetensors"):
        with file.open("rb") as content:
            while block := content.read(1 << 20):
                digest.update(block)
    for path in paths:
        digest.update(os.fsencode(path) + b"\0")
    return digest.hexdigest()


def _read_fingerprint(stored: Path) -> str | None:
    try:
        return str(read_json(stored, dict[str, str])["identity"])
    except (OSError, TextError, KeyError):
        return None


def _cut_to_whole_batches(rows: Path, batch_size: int) -> int:
    """Truncate a torn last line and rows beyond the last whole batch; returns how many rows are kept."""
    keep = position = lines = done = 0
    with rows.open("ab+") as file:
        file.seek(0)
        for line in file:
            if not line.endswith(b"\n"):
                break
            position += len(line)
            lines += 1
            if lines % batch_size == 0:
                keep, done = position, lines
        file.truncate(keep)
    return done
