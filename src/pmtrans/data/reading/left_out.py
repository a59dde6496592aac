"""What lies among images and is not read, told in one line each with a count and an example.

Only names are looked at, while they are listed anyway.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from pmtrans.errors import one_line

_OTHER_FORMATS = frozenset(
    {".jp2", ".j2k", ".j2c", ".jpc", ".jpf", ".jpx", ".jxl", ".jxr", ".tga", ".psd", ".psb", ".xcf", ".ico", ".icns"}
    | {".dds", ".pcx", ".sgi", ".svg", ".svgz", ".eps", ".exr", ".hdr", ".pfm", ".pam", ".qoi", ".dcm", ".raw", ".dng"}
    | {".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf", ".pef", ".srw"}
)


def has_other_format(name: str) -> bool:
    """Whether a file name has the extension of an image that no decoder here reads."""
    return os.path.splitext(name)[1].lower() in _OTHER_FORMATS


@dataclass
class LeftOut:
    """Gathered while a folder or shards are listed."""

    other_formats: int = 0
    of_other_format: str = ""  # the first of them
    hidden: list[str] = field(default_factory=list)  # folders with images whose names begin with a dot
    empty: list[str] = field(default_factory=list)  # folders beside those of classes

    def add(self, path: str, count: int = 1) -> None:
        """Files of formats that cannot be read."""
        self.of_other_format = self.of_other_format or path
        self.other_formats += count

    def warnings(self, origin: object) -> tuple[str, ...]:
        """One line for each kind."""
        told = []
        if self.other_formats:
            example = one_line(os.path.basename(self.of_other_format), 80)
            told.append(f"{self.other_formats} files of formats that cannot be read, such as {example}: convert them")
        if self.hidden:
            example = one_line(os.path.basename(self.hidden[0]), 80)
            told.append(f"{len(self.hidden)} hidden folders with images, such as {example}: rename them to use them")
        if self.empty:
            example = one_line(os.path.basename(self.empty[0]), 80)
            told.append(f"{len(self.empty)} folders without an image, such as {example}: they become no class")
        return tuple(f"{one_line(origin)}: left out: {line}" for line in told)
