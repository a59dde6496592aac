"""The one reader of text files: recipes, lists, and every JSON and YAML file of a run or a model folder.

A text is a regular file of a bounded size and depth, without aliases, that fits its schema; anything else is one
``TextError``. Files that cannot be opened raise their ``OSError``.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from pmtrans.errors import UserError, one_line

SETTINGS_BYTES = 100_000  # recipes, overrides, config.yaml: YAML is slow to read
JSON_BYTES = 100_000_000  # JSON and logs of a run
LIST_BYTES = 1_000_000_000  # lists and tables of images
MAX_DEPTH = 40
MAX_BITS = 1024  # of an integer
MAX_IMAGES = 10_000_000  # of a domain

# numbers of a schema: finite, and no texts that look like one
Number = Annotated[float, Field(ge=-1e12, le=1e12, strict=True)]
Fraction = Annotated[float, Field(ge=0, le=1, strict=True)]
Seconds = Annotated[float, Field(ge=0, le=1e12, strict=True)]
Count = Annotated[int, Field(ge=0, le=2**53, strict=True)]


class TextError(UserError):
    """A text that is too large, too deep, not what it should be, or no text."""


def read_bytes(path: Path, limit: int = JSON_BYTES) -> bytes:
    """All bytes of a regular file; a pipe, which would block, and a device, which may never end, are refused."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise TextError("not a regular file")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise TextError(f"more than {limit} bytes")
    return data


def read_text(path: Path, limit: int = JSON_BYTES) -> str:
    """UTF-8; other bytes are surrogate-escaped, as in file names."""
    return read_bytes(path, limit).decode("utf-8", "surrogateescape")


def read_json(path: Path, schema: Any = Any) -> Any:
    """The value of a JSON file, which must fit ``schema``: a type, a dataclass or a pydantic model."""
    return parse_json(read_text(path), schema)


def parse_json(text: str | bytes, schema: Any = Any) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # also integers of thousands of digits
        raise TextError(f"not JSON: {_first_line(error)}") from None
    _refuse_deep(value)
    if ("\\u" in text) if isinstance(text, str) else (b"\\u" in text or b"\xed" in text):
        _refuse_no_text(value)
    return checked(value, schema)


def read_yaml(path: Path) -> Any:
    return parse_yaml(read_text(path, SETTINGS_BYTES))


def parse_yaml(text: str) -> Any:
    """Plain YAML: no tags of Python, and no aliases, of which a few lines could stand for gigabytes."""
    if len(text) > SETTINGS_BYTES:
        raise TextError(f"more than {SETTINGS_BYTES} bytes")
    try:
        value = yaml.load(text, _PlainLoader)
        _refuse_no_text(value)
        return value
    except TextError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # also dates that do not exist
        raise TextError(f"not valid YAML: {_first_line(error)}") from None


def checked(value: Any, schema: Any, name: str = "") -> Any:
    """``value`` as ``schema``; the first thing that does not fit is named, below ``name``."""
    if schema is Any:
        return value
    try:
        return TypeAdapter(schema).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in (*filter(None, [name]), *first["loc"]))
        raise TextError(one_line(f"{where}: {first['msg']}" if where else first["msg"], 150)) from None


def like(schema: Any) -> AfterValidator:
    """For a field that fits ``schema`` and stays as it was written, keys that ``schema`` does not have included."""

    def fits(value: Any) -> Any:
        checked(value, schema)
        return value

    return AfterValidator(fits)


class _PlainLoader(yaml.SafeLoader):
    """Like ``safe_load``, refusing aliases, depth and endless integers while it reads."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise TextError("aliases (*name) are not allowed: write the value out")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TextError(f"nested more than {MAX_DEPTH} deep")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_yaml_int(self, node: Any) -> Any:
        value = super().construct_yaml_int(node)
        if value.bit_length() > MAX_BITS:  # Python refuses to write out thousands of digits, in a message too
            raise TextError(f"an integer of more than {MAX_BITS} bits")
        return value


_PlainLoader.add_constructor("tag:yaml.org,2002:int", _PlainLoader.construct_yaml_int)


def _refuse_deep(value: Any) -> None:
    level, depth = [value], 0
    while level := [
        inner
        for one in level
        if isinstance(one, list | dict)
        for inner in (one.values() if isinstance(one, dict) else one)
        if isinstance(inner, list | dict)
    ]:
        depth += 1
        if depth > MAX_DEPTH:
            raise TextError(f"nested more than {MAX_DEPTH} deep")


def _refuse_no_text(value: Any) -> None:
    """A NUL and half a character can be escaped in JSON and YAML, but neither written to a file nor put in a path."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, str) and not is_text(one):
            raise TextError(f"not a text: {one_line(one, 60)!r}")


def is_text(text: str) -> bool:
    """Whether ``text`` can be in a file and a path: whole characters, or bytes of a name that is not UTF-8."""
    try:
        return b"\0" not in text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False


def _first_line(error: BaseException) -> str:
    said = str(error).strip()
    return one_line(said.splitlines()[0] if said else type(error).__name__, 120)
