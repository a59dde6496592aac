"""One domain: the images of one place, whatever they were read from.

A target domain used for training is a plain ``Domain``, which has no label field at all, so that
a leak of target labels cannot be written by accident. Labels exist on ``LabelledDomain`` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Domain:
    """Image paths in a fixed order. ``paths`` are strings (surrogate-escaped where not UTF-8)."""

    origin: Path  # what the user pointed at: a folder, a list file or a table
    paths: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.paths)


@dataclass(frozen=True)
class LabelledDomain(Domain):
    """A domain whose images have a class each: ``classes[labels[i]]`` is the class of ``paths[i]``."""

    labels: tuple[int, ...]
    classes: tuple[str, ...]

    def without_labels(self) -> Domain:
        """The same images as a training target sees them."""
        return Domain(self.origin, self.paths)
