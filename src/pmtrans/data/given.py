"""A target under the labels of a given model: what stands for the source where no source image is at hand.

``given.json`` of a run that moves a shipped model. Labels and anchors are by position in the target, so the images may
lie elsewhere when the run is resumed. Anchors are the images that the given model is surest of.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.data.transforms import Preprocessing
from pmtrans.errors import DataError, UserError, one_line
from pmtrans.files import write_json
from pmtrans.texts import read_json


@dataclass(frozen=True)
class GivenModel:
    """What a moved model keeps of the given one besides its weights."""

    preprocessing: Preprocessing
    temperature: float
    weights: str  # where its first weights came from, for the licence


@dataclass(frozen=True)
class GivenLabels:
    """``model``: checksum of the given model; ``target``: fingerprint of the images that it labelled."""

    model: str
    target: dict[str, Any]
    classes: list[str]
    labels: list[int]
    anchors: list[int]

    def as_source(self, target: Domain) -> tuple[LabelledDomain, LabelledDomain]:
        """(the whole target under these labels, its anchors)."""
        if len(target) != len(self.labels):
            raise DataError(f"{one_line(target.origin)}: {len(target)} images, but {len(self.labels)} were labelled")
        classes = tuple(self.classes)
        anchors = Domain(target.origin, tuple(target.paths[place] for place in self.anchors))
        held = LabelledDomain(anchors, tuple(self.labels[place] for place in self.anchors), classes)
        return LabelledDomain(target, tuple(self.labels), classes), held


def write_given_labels(path: Path, given: GivenLabels) -> None:
    write_json(path, asdict(given))


def read_given_labels(path: Path) -> GivenLabels:
    """The file, if it is whole and its numbers are places and classes."""
    try:
        given = cast(GivenLabels, read_json(path, GivenLabels))
        if not given.anchors or not all(0 <= place < len(given.labels) for place in given.anchors):
            raise UserError("anchors that are no images")
        if not all(0 <= label < len(given.classes) for label in given.labels):
            raise UserError("labels that are no classes")
    except (OSError, UserError) as error:
        raise DataError(f"{one_line(path)}: cannot be read ({one_line(error, 100)})") from None
    return given
