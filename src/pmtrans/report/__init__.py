"""The report of a run. The room has the name of a verb, so it is callable: ``pmtrans.report("runs/phone")``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from types import ModuleType


class _Verb(ModuleType):
    """What ``pmtrans.report`` is once anything of this room is imported, which replaces the function of that name."""

    def __call__(
        self,
        run: str | PathLike[str],
        out: str | PathLike[str] | None = None,
        *,
        quiet: bool = False,
        allow_addresses: Sequence[str] = (),
    ) -> Path:
        from pmtrans.progress import Reporter
        from pmtrans.report.page import write_report

        place = None if out is None else Path(out)
        return write_report(Path(run), place, reporter=Reporter(quiet), allowed=allow_addresses)


sys.modules[__name__].__class__ = _Verb
