"""What ``--methods`` lists: ``method``, ``method:preset``, and switches such as ``pmtrans:beta=fixed(1,1)``.

An entry is also the name of a table row. Entries with the same configuration get the same name, so that a run that
several ablations need is done once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pmtrans.config import Config, read_recipe
from pmtrans.config.load import for_method
from pmtrans.errors import ConfigError, one_line
from pmtrans.settings import load_config

LABEL_SMOOTHING = 0.1
START = "train.start"
_PER_RUN = {
    "method.name": "--methods", "seed": "--seeds", "data.source": "--data and --tasks",
    "data.target": "--data and --tasks", "data.root": "--data", "data.classes": "--data",
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A method, a preset of it, and switches ``key=value`` (of the method, or of a section: ``train.clip=1``)."""

    method: str
    preset: str | None = None
    switches: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return ":".join([self.method, *([self.preset] if self.preset else []), *self.switches])


def parse_entries(text: str) -> list[Entry]:
    """Comma-separated entries; commas within brackets do not separate."""
    return [_parse(part) for part in split_outside_brackets(text, ",")]


def _parse(text: str) -> Entry:
    method, *parts = split_outside_brackets(text, ":")
    presets = [part for part in parts if "=" not in part]
    if len(presets) > 1:
        raise ConfigError(f"Method {one_line(text)!r} names two presets: write method:preset:switch=value.")
    return Entry(method, presets[0] if presets else None, tuple(part for part in parts if "=" in part))


def split_outside_brackets(text: str, separator: str) -> list[str]:
    return [part.strip() for part in _parts(text, separator) if part.strip()]


def _parts(text: str, separator: str) -> Iterator[str]:
    depth, begin = 0, 0
    for place, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == separator and depth == 0:
            yield text[begin:place]
            begin = place + 1
    yield text[begin:]


@dataclass(frozen=True)
class SharedSettings:
    """The settings that all runs of a suite share: recipe, flags (dotted keys), overrides ``section.key=value``.

    ``tuned``: further switches of single entries, by their names; a table names such an entry as without them.
    """

    recipe: Path | None = None
    overrides: tuple[str, ...] = ()
    flags: Mapping[str, Any] = field(default_factory=dict)
    per_run: Mapping[str, str] = field(default_factory=lambda: _PER_RUN)  # keys of one run, and the flags for them
    tuned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    from_source: bool = False  # start at the end of the source stage, also where the recipe says otherwise

    def __post_init__(self) -> None:
        for override in self.overrides:
            key = override.partition("=")[0].strip()
            if key in self.per_run:
                raise ConfigError(f"Key {key!r} differs between the runs of a suite: use {self.per_run[key]}.")

    def configure(self, entry: Entry, run_settings: Mapping[str, Any] | None = None) -> Config:
        """The configuration of an entry; ``run_settings`` are those of one run (seed, domains).

        A recipe's method section applies to its own method and preset: another preset starts from its own values,
        another method inherits the shared switches only. ``method.key=value`` applies to the methods that have the key.
        A method with presets that nobody chose has the paper's: tables compare with the paper's numbers. Without
        another one given, all methods have one label smoothing, and so one source stage, and start at its end.
        """
        of_recipe = self._section()
        section = for_method({"method": of_recipe}, entry.method)["method"]
        preset = section.get("preset", "paper")
        if section is of_recipe and entry.preset not in (None, preset):
            section = {}
        section = {"label_smoothing": LABEL_SMOOTHING, **section, "name": entry.method}
        if entry.preset or _has_option(entry.method, "method.preset"):
            section["preset"] = entry.preset or preset
        overrides = [o for o in self.overrides if not o.startswith("method.") or _has_option(entry.method, o)]
        given = (*self.tuned.get(entry.name, ()), *entry.switches)
        switches = [text if "." in text.partition("=")[0] else f"method.{text}" for text in given]
        flags = {**self._start(), **self.flags, "method": section, **(run_settings or {})}
        return load_config(self.recipe, [*overrides, *switches], flags)

    def _start(self) -> dict[str, str]:
        given = (read_recipe(self.recipe) if self.recipe else {}).get("train") or {}
        return {} if isinstance(given, dict) and "start" in given and not self.from_source else {START: "source"}

    def canonical(self, entry: Entry) -> Entry:
        """The same entry without a preset and switches that have no effect."""
        wanted = self.configure(entry)
        candidates = [
            *([Entry(entry.method, None, entry.switches)] if entry.preset else []),
            *(Entry(entry.method, entry.preset, _without(entry.switches, switch)) for switch in entry.switches),
        ]
        for shorter in candidates:
            if self.configure(shorter) == wanted:
                return self.canonical(shorter)
        return entry

    def check(self, entries: Sequence[Entry]) -> None:
        """Refuse an override ``method.key=value`` that no entry has."""
        for override in self.overrides:
            if override.startswith("method.") and not any(_has_option(entry.method, override) for entry in entries):
                load_config(
                    None, [override], {"method.name": entries[0].method}
                )  # raises, with what is wrong with the key

    def _section(self) -> dict[str, Any]:
        section = (read_recipe(self.recipe) if self.recipe else {}).get("method") or {}
        return dict(section) if isinstance(section, dict) else {}


def _without(switches: tuple[str, ...], one: str) -> tuple[str, ...]:
    return tuple(switch for switch in switches if switch != one)


def _has_option(method: str, override: str) -> bool:
    from pmtrans.methods import METHODS

    key = override.partition("=")[0].strip().removeprefix("method.").split(".")[0]
    return method in METHODS and key in METHODS[method].options.model_fields
