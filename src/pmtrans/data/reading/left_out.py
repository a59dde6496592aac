"""What lies among images and is not read, told in one line each with a count and an example.

Only names are looked at, while they are listed anyway.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal

from pmtrans.errors import one_line

_OTHER_FORMATS = frozenset(
    {".jp2", ".j2k", ".j2c", ".jpc", ".jpf", ".jpx", ".jxl", ".jxr", ".tga", ".psd", ".psb", ".xcf", ".ico", ".icns"}
    | {".dds", ".pcx", ".sgi", ".svg", ".svgz", ".eps", ".exr", ".hdr", ".pfm", ".pam", ".qoi", ".dcm", ".raw", ".dng"}
    | {".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf", ".pef", ".srw"}
)

# What usually lies beside images: texts, tables, annotations, arrays, what cameras and file managers write.
_BESIDE_IMAGES = frozenset(
    {".txt", ".lst", ".list", ".csv", ".tsv", ".tab", ".xls", ".xlsx", ".ods", ".parquet", ".pq", ".arrow"}
    | {".json", ".jsonl", ".ndjson", ".geojson", ".xml", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".log"}
    | {".cls", ".names", ".data", ".npy", ".npz", ".mat", ".h5", ".hdf5", ".pkl", ".pickle", ".pt", ".pth"}
    | {".md", ".rst", ".html", ".htm", ".css", ".js", ".pdf", ".doc", ".docx", ".odt", ".rtf", ".bib"}
    | {".py", ".ipynb", ".sh", ".md5", ".sha1", ".sha256", ".db", ".url", ".lnk", ".xmp", ".aae", ".thm"}
)
_TEXTS = frozenset(
    {"readme", "license", "licence", "copying", "notice", "authors", "changelog", "version", "citation", "manifest"}
    | {"makefile", "dockerfile", "md5sums", "sha1sums", "sha256sums", "checksums", "__key__", "icon\r"}
)
Kind = Literal["other formats", "no image name", "hidden images", "hidden folders", "empty folders"]
_SAID: dict[Kind, str] = {
    "other formats": "files of formats that cannot be read, such as {}: convert them",
    "no image name": "files without the extension of an image, such as {}: rename those that are images",
    "hidden images": "hidden images, such as {}: rename them to use them",
    "hidden folders": "hidden folders with images, such as {}: rename them to use them",
    "empty folders": "folders without an image, such as {}: they become no class",
}


@dataclass
class LeftOut:
    """Gathered while a folder or shards are listed: of each kind, how many and the first of their names."""

    found: dict[Kind, tuple[int, str]] = field(default_factory=dict)

    def look_at(self, name: str) -> None:
        """A file that is not read as an image: add it unless its like is expected beside images."""
        suffix = os.path.splitext(name)[1].lower()
        if suffix in _OTHER_FORMATS:
            self.add("other formats", name)
        elif suffix not in _BESIDE_IMAGES and name.lower() not in _TEXTS:
            self.add("no image name", name)

    def add(self, kind: Kind, name: str, count: int = 1) -> None:
        """``count`` more, of which ``name`` is one."""
        name = one_line(name, 80)
        before, first = self.found.get(kind, (0, name))
        self.found[kind] = (before + count, min(first, name))

    def update(self, other: LeftOut) -> None:
        """What was gathered elsewhere too."""
        for kind, (count, name) in other.found.items():
            self.add(kind, name, count)

    def warnings(self, origin: object) -> tuple[str, ...]:
        """One line for each kind."""
        told = [
            f"{self.found[kind][0]} {said.format(self.found[kind][1])}"
            for kind, said in _SAID.items()
            if kind in self.found
        ]
        return tuple(f"{one_line(origin)}: left out: {line}" for line in told)
