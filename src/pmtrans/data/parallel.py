"""Work over many files at once, in order, with a progress bar where somebody watches."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pmtrans.machine import cores

Result = TypeVar("Result")
_CHUNK = 16  # files a task: a future for each of a million files would cost more than the small files do


def map_files(
    function: Callable[[str], Result], paths: Sequence[str], title: str, workers: int | None = None
) -> list[Result]:
    """``[function(path) for path in paths]``, on all processors.

    Threads suffice: Pillow, NumPy and hashlib leave the interpreter's lock while they work. The progress bar
    goes to the error stream, and only if that is a terminal.
    """
    workers = workers or cores()
    chunks = [paths[start : start + _CHUNK] for start in range(0, len(paths), _CHUNK)]
    with warnings.catch_warnings(), ThreadPoolExecutor(workers) as pool:
        warnings.simplefilter("ignore")  # Pillow's, about files whose fate the result tells
        try:
            done = pool.map(lambda chunk: [function(path) for path in chunk], chunks)
            return [result for results in _watched(done, len(paths), title) for result in results]
        except BaseException:  # Ctrl-C too: do not work through what is left
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _watched(done: Iterator[list[Result]], total: int, title: str) -> Iterator[list[Result]]:
    if not sys.stderr.isatty():
        yield from done
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        for results in done:
            progress.advance(task, len(results))
            yield results
