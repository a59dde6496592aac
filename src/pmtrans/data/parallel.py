"""A parallel map over files, in order, with a progress bar on a terminal."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from pmtrans.machine import cores

Result = TypeVar("Result")
_CHUNK = 16  # files per future: one future per file would cost more than reading a small file


class FileMap(Protocol):
    """``[function(path) for path in paths]``, wherever it is computed; ``title`` is that of the progress bar."""

    def __call__(self, function: Callable[[str], Result], paths: Sequence[str], title: str) -> list[Result]: ...


def map_files(
    function: Callable[[str], Result], paths: Sequence[str], title: str, workers: int | None = None
) -> list[Result]:
    """``[function(path) for path in paths]``, on all cores.

    Threads suffice, as Pillow, NumPy and hashlib release the GIL. The progress bar is written to stderr, and only if
    that is a terminal.
    """
    workers = workers or cores()
    chunks = [paths[start : start + _CHUNK] for start in range(0, len(paths), _CHUNK)]
    with warnings.catch_warnings(), ThreadPoolExecutor(workers) as pool:
        warnings.simplefilter("ignore")  # Pillow's, about files that the result reports anyway
        try:
            done = pool.map(lambda chunk: [function(path) for path in chunk], chunks)
            return [result for results in with_progress_bar(done, len(paths), title) for result in results]
        except BaseException:  # Ctrl-C too: cancel what is left
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def with_progress_bar(done: Iterator[list[Result]], total: int, title: str) -> Iterator[list[Result]]:
    """The results as they are; on a terminal a bar says how many of ``total`` there are."""
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
