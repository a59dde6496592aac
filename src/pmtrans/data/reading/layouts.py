"""The kinds of input: what training, checking and prediction can be pointed at, in one table.

A layout turns a path into rows, one per image. The paths in a file are as they were written there, and are located on
this machine by whoever asked; a folder's are those of files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pmtrans.addresses import is_allowed, is_remote
from pmtrans.data.reading.folders import list_folder, read_folder
from pmtrans.data.reading.huggingface import is_huggingface_dataset, read_huggingface_dataset
from pmtrans.data.reading.left_out import LeftOut
from pmtrans.data.reading.listing import MalformedLines, Row
from pmtrans.data.reading.locate import locate
from pmtrans.data.reading.shards import TAR, is_shards, read_shards
from pmtrans.data.reading.tables import LIST_SUFFIXES, TABLE_SUFFIXES, read_list, read_table
from pmtrans.errors import one_line


@dataclass(frozen=True)
class Request:
    """What is asked of a layout: whether every image needs its label, and which columns of a table to take.

    ``left_out`` gathers what the layout finds and does not read.
    """

    labels_required: bool = False
    path_column: str | None = None
    label_column: str | None = None
    left_out: LeftOut = field(default_factory=LeftOut)


@dataclass(frozen=True)
class Layout:
    """Recognised by the suffix of a file, or by what ``is_folder`` finds in a folder."""

    read: Callable[[Path, Request], list[Row]]
    suffixes: tuple[str, ...] = ()
    is_folder: Callable[[Path], bool] | None = None
    explicit_labels: bool = (
        True  # the labels were written down, so they do mean classes; names of folders may mean anything
    )
    numbered_names: bool = False  # images are extracted to files that are named by the number of their row
    paths: Callable[[Path, LeftOut], list[str]] | None = (
        None  # a cheaper way to the paths alone; None: those of the rows
    )


SHARDS = Layout(
    lambda path, asked: read_shards(path, asked.labels_required, asked.path_column, asked.label_column, asked.left_out),
    suffixes=(TAR,),
)
LAYOUTS: tuple[Layout, ...] = (  # the first that recognises a path reads it
    SHARDS,
    Layout(
        lambda path, asked: read_huggingface_dataset(
            path, asked.path_column, asked.label_column, asked.labels_required
        ),
        is_folder=is_huggingface_dataset,
        numbered_names=True,
    ),
    Layout(lambda path, asked: read_list(path, asked.labels_required), suffixes=LIST_SUFFIXES),
    Layout(
        lambda path, asked: read_table(path, asked.labels_required, asked.path_column, asked.label_column),
        suffixes=TABLE_SUFFIXES,
    ),
    Layout(
        lambda path, asked: read_folder(path, asked.left_out).rows,
        is_folder=Path.is_dir,
        explicit_labels=False,
        paths=list_folder,
    ),
)


def layout_of(path: Path) -> Layout | None:
    """The layout of what lies at ``path``; None: nothing lies there, or a file of no known suffix."""
    if is_shards(path):
        return SHARDS
    if path.is_dir():
        return next(layout for layout in LAYOUTS if layout.is_folder is not None and layout.is_folder(path))
    suffix = path.suffix.lower()
    return next((layout for layout in LAYOUTS if suffix in layout.suffixes and path.exists()), None)


def known_suffixes() -> str:
    """For messages: every suffix of a file that can be read."""
    return ", ".join(suffix for layout in LAYOUTS for suffix in layout.suffixes)


def located_rows(layout: Layout, path: Path, asked: Request, root: str | Path | None) -> list[Row]:
    """The rows of what lies at ``path``, in its own order, with the paths of the images on this machine."""
    rows = layout.read(path, asked)
    if layout is SHARDS or layout.paths is not None:  # the places are those that were asked for
        return rows
    allowed = [] if root is None else [str(root)]
    remote = [row for row in rows if is_remote(row.path) and not is_allowed(row.path, allowed)]
    if remote:  # whoever wrote the list would choose what this machine connects to
        why = "is at another address: give that as root to allow it"
        raise MalformedLines(path, [(row.line, f"{one_line(row.path, 60)!r} {why}") for row in remote])
    if not path.is_file():
        return rows
    places = locate([row.path for row in rows], path, root)
    return [Row(row.line, place, row.label) for row, place in zip(rows, places, strict=True)]


def located_paths(layout: Layout, path: Path, root: str | Path | None, left_out: LeftOut) -> list[str]:
    """The paths alone, in the same order."""
    if layout.paths is not None:
        return layout.paths(path, left_out)
    return [row.path for row in located_rows(layout, path, Request(left_out=left_out), root)]
