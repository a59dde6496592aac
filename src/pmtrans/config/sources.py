"""``data.source``: one place, or a list of places whose classes are matched by name."""

from __future__ import annotations

import os
from collections.abc import Iterable
from os import PathLike, fspath
from typing import Any

from pmtrans.addresses import as_address
from pmtrans.errors import DataError, one_line

Places = str | tuple[str, ...]


def one_or_several(given: Any) -> Any:
    """A list of one place as that place; places as strings. What is no place or list is left for the validation."""
    if isinstance(given, str | PathLike):
        return fspath(given)
    if not isinstance(given, list | tuple):
        return given
    places = [fspath(place) if isinstance(place, PathLike) else place for place in given]
    return places[0] if len(places) == 1 else tuple(places)


def source_places(given: Places | None) -> tuple[str, ...]:
    """Every place that ``data.source`` names."""
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(given)


def refuse_same_place(places: Iterable[str | PathLike[str]]) -> None:
    """The same source twice would count twice in every batch."""
    seen: dict[str, str] = {}
    for place in places:
        real = os.path.realpath(as_address(place))
        if real in seen:
            raise DataError(f"--source {one_line(place)} is given twice: each source once")
        seen[real] = fspath(place)


def source_names(places: Iterable[str | PathLike[str]]) -> tuple[str, ...]:
    """For display: of each place the last parts of its path, as few as tell it from the others."""
    parts = [os.path.abspath(as_address(place)).split(os.sep) for place in places]
    names = []
    for own in parts:
        depth = 1
        while depth < len(own) and sum(other[-depth:] == own[-depth:] for other in parts) > 1:
            depth += 1
        names.append("/".join(own[-depth:]))
    return tuple(names)
