"""Threads that decode uploads, and whether all of them have been held too long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Decoders:
    """At most ``threads`` images are decoded at once; a thread is held if its image takes more than ``patience`` s."""

    def __init__(self, threads: int, patience: float) -> None:
        self.threads, self.patience = threads, patience
        self._pool = ThreadPoolExecutor(threads, "decode")
        self._begun: dict[object, float] = {}  # when each of those that work now began

    async def __call__(
        self, decode: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs
    ) -> Result:
        def timed() -> Result:
            key = object()
            self._begun[key] = time.monotonic()
            try:
                return decode(*arguments, **options)
            finally:
                del self._begun[key]

        return await asyncio.get_running_loop().run_in_executor(self._pool, timed)

    @property
    def are_held(self) -> bool:
        """Whether no thread is left for the next image."""
        latest = time.monotonic() - self.patience
        return sum(begun < latest for begun in tuple(self._begun.values())) >= self.threads

    def shutdown(self) -> None:
        self._pool.shutdown()
