"""What all verbs have in common: an option given twice is refused, as one would win silently; so are nan and inf."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import typer
from typer.core import TyperCommand

from pmtrans.errors import ConfigError


class Verb(TyperCommand):
    """A command whose single-valued options may be given once each."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:  # completion parses half a command line
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
            _refuse_repeated(given)
        remaining = super().parse_args(ctx, args)
        _refuse_not_finite(self.params, ctx.params)
        return remaining


class Verbs(typer.Typer):
    """A Typer application whose commands are verbs."""

    def command(self, *args: Any, **options: Any) -> Callable[[Any], Any]:
        return super().command(*args, **{"cls": Verb, **options})


def _refuse_not_finite(options: Iterable[Any], values: Mapping[str, Any]) -> None:
    """A range with one end lets the infinite pass, and without ends also ``nan``."""
    for option in options:
        value = values.get(option.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{option.opts[0]} is {value}, not a finite number.")


def _refuse_repeated(given: Iterable[Any]) -> None:
    """``given``: the parameters as often as they are on the command line."""
    seen: set[str] = set()
    for option in given:
        only_on = getattr(option, "is_flag", False) and not option.secondary_opts  # --quiet --quiet: no contradiction
        if option.param_type_name != "option" or option.multiple or option.count or only_on:
            continue
        if option.name in seen:
            flags = "/".join((*option.opts[:1], *option.secondary_opts[:1]))
            raise ConfigError(f"{flags} is given twice: it takes one value.")
        seen.add(option.name)
