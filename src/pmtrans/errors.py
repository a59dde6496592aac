"""What a user can get wrong. Each message is one line: what is wrong, where, and how to fix it."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable

_SIGNS = (  # of libraries that have no exception of their own for it
    "can't allocate memory",
    "cannot allocate memory",
    "out of memory",
    "std::bad_alloc",
    "could not create a memory",
    "_status_alloc_failed",
)


class UserError(ValueError):
    """Wrong input or a wrong call: shown as one line, exit code 2, never a traceback."""


class DataError(UserError):
    """Something is wrong with the images, lists or labels that a user pointed at."""


class ConfigError(UserError):
    """An unknown key, or a value that does not fit."""


class ModelError(UserError):
    """A backbone or a weights file that cannot be used."""


class RunError(UserError):
    """A run folder that cannot be written, read or continued."""


class TrainingError(RuntimeError):
    """Training had to stop; what was saved before stays whole. Shown as one line, exit code 1."""


class ReportedByMainProcess(Exception):
    """Of several processes all fail in the same way: the main one reports it, the others just end."""


class MistakeReportedByMainProcess(UserError, ReportedByMainProcess):
    """A user's mistake that the main process found."""


class StopReportedByMainProcess(TrainingError, ReportedByMainProcess):
    """Training that stops in all processes at the same step."""


class LostProcess(TrainingError, ReportedByMainProcess):
    """Another process of the run is not there any more."""


TOO_MANY_OPEN_FILES = "Too many open files: raise the limit of this shell (ulimit -n), or lower data.workers."


def is_out_of_descriptors(error: BaseException) -> bool:
    """torch and its loaders report this as a ``RuntimeError``."""
    return getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE) or "too many open files" in str(error).lower()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory, of the machine or of a device, ran out."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    said = str(error).lower()
    refused = isinstance(error, RuntimeError) and any(sign in said for sign in _SIGNS)
    return isinstance(error, MemoryError) or (refused and not isinstance(error, TrainingError))


def nearest(word: str, known: Iterable[str]) -> str:
    """``" Did you mean 'x'?"`` for the known word closest to ``word``, or an empty string."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" Did you mean {matches[0]!r}?" if matches else ""


def one_line(text: object, limit: int = 400) -> str:
    """Text from outside made safe to show: no line breaks, no control characters, not endless."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text)[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
