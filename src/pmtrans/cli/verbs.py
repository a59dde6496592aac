"""What all verbs have in common: a value that is given twice is refused, as the last one would win silently."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import typer
from typer.core import TyperCommand

from pmtrans.errors import ConfigError, one_line

SETTINGS = "section.key=value"  # in the metavar of the arguments that are settings


class Verb(TyperCommand):
    """A command whose single-valued options and settings may be given once each."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:  # completion parses half a command line
            values, _, given = self.make_parser(ctx).parse_args(args=list(args))
            _refuse_repeated_options(given)
            for parameter in self.params:
                if SETTINGS in str(getattr(parameter, "metavar", None)):
                    _refuse_repeated_settings(values.get(parameter.name) or ())
        return super().parse_args(ctx, args)


class Verbs(typer.Typer):
    """A Typer application whose commands are verbs."""

    def command(self, *args: Any, **options: Any) -> Callable[[Any], Any]:
        return super().command(*args, **{"cls": Verb, **options})


def _refuse_repeated_options(given: Iterable[Any]) -> None:
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


def _refuse_repeated_settings(overrides: Iterable[str]) -> None:
    seen: set[str] = set()
    for override in overrides:
        key, equals, _ = override.partition("=")
        if equals and key.strip() in seen:
            raise ConfigError(f"Setting {one_line(key.strip())!r} is given twice: it takes one value.")
        seen.add(key.strip())
