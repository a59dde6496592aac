"""Every setting of a run with its type, default, range and description, read from the code that checks it.

``python -m pmtrans.settings_reference > docs/settings.md`` writes the page; ``pmtrans settings`` shows the same.
The sections need no torch; the methods' options stand beside code that does, so they are imported when asked for.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pmtrans.config import Config
from pmtrans.errors import ConfigError, nearest, one_line

_WORDS = {bool: "true or false", int: "int", float: "float", str: "text", type(None): "null"}
_SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


@dataclass(frozen=True)
class Setting:
    """One key; of a method's options, which differ from method to method, one key of one method."""

    section: str  # "train"; "method.dann" for the options of DANN; "" for keys outside all sections
    key: str  # as it is typed: "train.clip", "method.weight"
    kind: str
    default: Any  # as JSON has it
    range: str
    description: str

    @property
    def default_text(self) -> str:
        """As it is typed after ``key=``."""
        return self.default if isinstance(self.default, str) else json.dumps(self.default)

    @property
    def kind_and_range(self) -> str:
        return f"{self.kind}, {self.range}" if self.range else self.kind

    def is_named(self, name: str) -> bool:
        """Whether ``name`` is this key or holds it: ``train``, ``dann``, ``method.dann``, ``dann.weight``."""
        places = (self.section, f"{self.section}.{self.key.rpartition('.')[2]}")
        return name in (self.key, *places, *(place.removeprefix("method.") for place in places))


def section_settings() -> list[Setting]:
    """Every key but those under ``method``."""
    return _settings(Config, "", "")


def method_settings() -> list[Setting]:
    """``method.name`` and the options of every method."""
    from pmtrans.methods import METHODS  # here: the sections do not wait for torch

    field = Config.model_fields["method"]
    name = Setting("method", "method.name", _one_of(METHODS), field.default["name"], "", field.description or "")
    options = [_settings(entry.options, f"method.{method}", "method.") for method, entry in METHODS.items()]
    return [name, *(setting for of_method in options for setting in of_method)]


def all_settings() -> list[Setting]:
    return section_settings() + method_settings()


def section_titles() -> dict[str, str]:
    """What each section holds, in a sentence; of a method, its name and paper."""
    from pmtrans.methods import METHODS

    titles = {"": "Outside all sections."}
    for name, field in Config.model_fields.items():
        if _is_section(field.annotation):
            titles[name] = (field.annotation.__doc__ or "").splitlines()[0]
    titles["method"] = "The method, by its name; its options stand beside it."
    return titles | {f"method.{name}": f"{entry.method.title}: {entry.method.paper}" for name, entry in METHODS.items()}


def find_settings(name: str) -> list[Setting]:
    """The settings that ``name`` (a section, key or method) names; if there are none, the keys that contain it."""
    wanted = name.strip().lower().replace("-", "_")
    of_sections = section_settings()
    found = [setting for setting in of_sections if setting.is_named(wanted)]
    if found:
        return found
    settings = of_sections + method_settings()
    found = [setting for setting in settings if setting.is_named(wanted)]
    found = found or [setting for setting in settings if wanted in setting.key]
    if not found:
        hint = nearest(wanted, _names(settings)) or " `pmtrans settings` lists all."
        raise ConfigError(f"Unknown setting {one_line(name, 60)!r}.{hint}")
    return found


def as_markdown() -> str:
    """The page ``docs/settings.md``."""
    titles = section_titles()
    lines = [
        "# Settings",
        "",
        "Give any setting as `key=value` after the flags of `pmtrans train`, or in a YAML recipe. On the terminal,",
        "`pmtrans settings train` shows a section, `pmtrans settings train.clip` a key, `pmtrans settings dann` the",
        "options of a method, and `pmtrans settings warmup` every key with that word in it; `--json` is for programs.",
        "",
        "```console",
        "pmtrans train --source photos/shop --target photos/phone --out runs/phone train.epochs=10 train.clip=1.0",
        "```",
        "",
        "This page is generated from the code: `python -m pmtrans.settings_reference > docs/settings.md`.",
    ]
    settings = all_settings()
    for section, title in titles.items():
        rows = [setting for setting in settings if setting.section == section]
        level = "###" if section.startswith("method.") else "##"
        lines += ["", f"{level} {section.removeprefix('method.') or 'Top level'}", "", title, ""]
        lines += ["| key | values | default | what it does |", "|---|---|---|---|"]
        for row in rows:
            cells = (f"`{row.key}`", row.kind_and_range, f"`{row.default_text}`", row.description)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _settings(model: type[BaseModel], section: str, prefix: str) -> list[Setting]:
    found: list[Setting] = []
    defaults = json.loads(model().model_dump_json())  # with what a preset fills in
    for name, field in model.model_fields.items():
        if _is_section(field.annotation):
            found += _settings(field.annotation, name, f"{name}.")
        elif (model, name) != (Config, "method"):  # its keys depend on the method
            said = field.description or ""
            found.append(Setting(section, prefix + name, _kind(field.annotation), defaults[name], _range(field), said))
    return found


def _is_section(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _kind(annotation: Any) -> str:
    """The type in words: ``int``, ``float or null``, ``one of: cosine, inverse, constant``."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return _one_of(inner)
    if origin in (Union, types.UnionType):
        return " or ".join(_kind(part) for part in inner)
    if origin is tuple:
        values = _kind(inner[0])
        return f"list of {values.removeprefix('one of: ')}" if inner[-1] is ... else f"list of {len(inner)} {values}"
    if origin is dict:
        return "mapping"
    return _WORDS.get(annotation, str(annotation))


def _one_of(values: Iterable[object]) -> str:
    return "one of: " + ", ".join(str(value) for value in values)


def _range(field: FieldInfo) -> str:
    bounds = [(sign, getattr(bound, name, None)) for bound in field.metadata for name, sign in _SIGNS.items()]
    return ", ".join(f"{sign} {limit}" for sign, limit in bounds if limit is not None)


def _names(settings: Iterable[Setting]) -> list[str]:
    """All that can be asked for: sections, methods, keys, and keys without their section."""
    names: dict[str, None] = {}
    for setting in settings:
        names |= dict.fromkeys((setting.section.removeprefix("method."), setting.key, setting.key.rpartition(".")[2]))
    return [name for name in names if name]


if __name__ == "__main__":
    print(as_markdown(), end="")
