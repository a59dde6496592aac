"""Where data are: a path, an address of another system (``s3://bucket/shop.tar``), or a pattern of several.

A pattern has ranges and choices in braces (``shop-{000..127}.tar``, ``{shop,phone}.tar``), or ``*``, ``?``, ``[...]``.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pmtrans.errors import DataError, one_line

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")  # two letters at least: C:/ is a disk
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"([0-9]{1,9})\.\.([0-9]{1,9})")
_HERE = ("file", "local")
_MAX_SHARDS = 100_000


def as_address(place: str | os.PathLike[str]) -> str:
    """``place`` as text; a ``Path`` has taken one of the two slashes of ``s3://``, and ``file://`` is a path."""
    text = os.fspath(place)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return text
    after = text[scheme.end() :]
    return f"/{after}" if scheme[1].lower() in _HERE else f"{scheme[1]}://{after}"


def as_path(place: str | os.PathLike[str]) -> Path:
    """``place`` as what the readers are given; a ``file://`` address is the path in it."""
    return Path(as_address(place))


def is_remote(place: str | os.PathLike[str]) -> bool:
    """Whether ``place`` is an address that needs fsspec, and no path of this machine."""
    return "://" in as_address(place)


def refuse_unasked(recorded: Iterable[str], allowed: Iterable[str]) -> None:
    """A run may come from somebody else: an address that it records is reached only where the user allows it."""
    for place in recorded:
        address = as_address(place)
        if is_remote(address) and not is_allowed(address, allowed):
            scheme, _, path = address.partition("://")
            host = f"{scheme}://{path.partition('/')[0]}"
            raise DataError(
                f"{one_line(address)}: an address that the run records; to reach it, allow it: "
                f"--allow-address {one_line(host)}"
            )


def is_allowed(address: str, allowed: Iterable[str]) -> bool:
    """Whether an address is one of those that the user gave, or below one."""
    return any(_is_below(as_address(address), as_address(one)) for one in allowed)


def _is_below(address: str, allowed: str) -> bool:
    """Of an address that leads through others (``::``) nothing but itself is known."""
    if address == allowed:
        return True
    return "://" in allowed and "::" not in address and address.startswith(allowed.rstrip("/") + "/")


def absolute(place: str | os.PathLike[str]) -> str:
    """The same place from any working directory."""
    address = as_address(place)
    return address if "://" in address else os.path.abspath(address)


def is_pattern(place: str | os.PathLike[str]) -> bool:
    """Whether ``place`` stands for several files; a file that is really called so is not one."""
    address = as_address(place)
    has_signs = bool(_BRACES.search(address)) or glob.has_magic(address)
    return has_signs and not (("://" not in address) and os.path.lexists(address))


def expand(place: str | os.PathLike[str]) -> list[str]:
    """The files that a place stands for: ranges in their order, what a ``*`` finds sorted by name."""
    address = as_address(place)
    if not is_pattern(address):
        return [address]
    found: list[str] = []
    for one in _without_braces(address):
        if not glob.has_magic(one):
            found.append(one)
        elif "://" in one:
            found += _remote_glob(one)
        else:
            found += sorted(glob.glob(one))
    if not found:
        raise DataError(f"{one_line(address)}: no file matches this pattern")
    return found


def _remote_glob(pattern: str) -> list[str]:
    filesystem, path = open_filesystem(pattern)
    names = reached(pattern, lambda: filesystem.glob(path))
    return sorted(filesystem.unstrip_protocol(name) for name in names)


def _without_braces(pattern: str) -> list[str]:
    """``a-{0..2}.tar`` as ``a-0.tar``, ``a-1.tar``, ``a-2.tar``; numbers keep the width of the first."""
    parts = _BRACES.split(pattern)  # text, inside of braces, text, ...
    choices = [[part] if place % 2 == 0 else _choices(part, pattern) for place, part in enumerate(parts)]
    count = 1
    for several in choices:
        count *= len(several)
    if count > _MAX_SHARDS:
        raise DataError(f"{one_line(pattern)}: stands for {count} files, {_MAX_SHARDS} allowed")
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _choices(inside: str, pattern: str) -> list[str]:
    numbers = _RANGE.fullmatch(inside)
    if numbers is None:
        return inside.split(",")
    first, last = int(numbers[1]), int(numbers[2])
    if last < first or last - first >= _MAX_SHARDS:
        raise DataError(f"{one_line(pattern)}: the range {inside} is empty or has more than {_MAX_SHARDS} numbers")
    return [str(number).zfill(len(numbers[1])) for number in range(first, last + 1)]


def open_filesystem(address: str) -> tuple[Any, str]:
    """(fsspec file system, path in it); a package that this kind of address needs and that is missing is named."""
    import fsspec

    scheme = address.partition("://")[0]
    try:
        filesystem, path = fsspec.core.url_to_fs(address)
    except ImportError as error:
        raise DataError(f"{one_line(address)}: {scheme}:// needs a package: {one_line(error, 150)}") from None
    except Exception as error:  # unknown schemes, credentials, regions: each package has its own
        raise DataError(f"{one_line(address)}: cannot be reached: {_reason(error)}") from None
    return filesystem, str(path)


def reached(address: str, do: Callable[[], Any]) -> Any:
    """``do()``, with whatever the network or its package raises as one line."""
    try:
        return do()
    except FileNotFoundError:
        raise DataError(f"{one_line(address)}: there is no such file") from None
    except Exception as error:
        raise DataError(f"{one_line(address)}: cannot be reached: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    return one_line(str(error) or type(error).__name__, 150)
