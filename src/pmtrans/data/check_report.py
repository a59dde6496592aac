"""What a check found, and the JSON object that scripts read it from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from pmtrans.data.readable import Unreadable
from pmtrans.data.statistics import Statistics
from pmtrans.data.twins import Twins


@dataclass(frozen=True)
class DomainReport:
    """One domain: ``images`` counts all files, ``classes`` those of each class (empty without labels)."""

    origin: str
    images: int
    classes: dict[str, int]
    unreadable: tuple[Unreadable, ...]
    statistics: Statistics | None


@dataclass(frozen=True)
class Report:
    """A full check. ``equal`` are duplicates to the pixel, ``duplicates`` those and the near ones."""

    source: DomainReport
    target: DomainReport
    duplicates: Twins
    equal: Twins
    domain_gap: float | None
    domain_gap_features: str
    warnings: tuple[str, ...]
    seconds: float

    @property
    def is_readable(self) -> bool:
        """Whether every file of both domains can be used."""
        return not self.source.unreadable and not self.target.unreadable

    def as_json(self) -> dict[str, Any]:
        """The object of the contract: ``source``, ``target``, ``duplicates``, ``domain_gap``, ``warnings``,
        and beside them what it does not ask for."""
        images = self.source.images + self.target.images
        return {
            "source": dataclasses.asdict(self.source),
            "target": dataclasses.asdict(self.target),
            "duplicates": dataclasses.asdict(self.duplicates) | {"equal": dataclasses.asdict(self.equal)},
            "domain_gap": self.domain_gap,
            "domain_gap_features": self.domain_gap_features,
            "warnings": list(self.warnings),
            "seconds": round(self.seconds, 3),
            "images_per_second": round(images / self.seconds, 1) if self.seconds else None,
        }
