"""Concurrent requests share passes of the model: one pass of many images costs far less than many of one."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from pmtrans.inference.predictor import Predictor


@dataclass
class _Waiting:
    image: Tensor
    attention: bool
    answer: asyncio.Future[tuple[Tensor, Tensor | None]]


class Batcher:
    """Takes transformed images, one at a time; answers with logits and, if asked, the attention map."""

    def __init__(self, predictor: Predictor, largest: int, wait_seconds: float) -> None:
        self.predictor = predictor
        self.largest = largest
        self.wait_seconds = wait_seconds
        self.passes = 0
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._model = ThreadPoolExecutor(1, "model")  # passes do not compete with each other for the cores
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """After the last request was answered."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._model.shutdown()

    async def __call__(self, image: Tensor, attention: bool) -> tuple[Tensor, Tensor | None]:
        answer: asyncio.Future[tuple[Tensor, Tensor | None]] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(_Waiting(image, attention, answer))
        return await answer

    async def _work(self) -> None:
        while True:
            batch = [await self._queue.get()]
            if self._queue.qsize() + 1 < self.largest:
                await asyncio.sleep(self.wait_seconds)
            while len(batch) < self.largest and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            await self._answer([waiting for waiting in batch if not waiting.answer.cancelled()])

    async def _answer(self, batch: list[_Waiting]) -> None:
        if not batch:
            return
        try:
            rows = await asyncio.get_running_loop().run_in_executor(self._model, self._pass, batch)
        except Exception as error:  # the request fails; the next one must still find a worker
            for waiting in batch:
                if not waiting.answer.done():
                    waiting.answer.set_exception(error)
            return
        for waiting, row in zip(batch, rows, strict=True):
            if not waiting.answer.done():
                waiting.answer.set_result(row)

    def _pass(self, batch: list[_Waiting]) -> list[tuple[Tensor, Tensor | None]]:
        self.passes += 1
        images = torch.stack([waiting.image for waiting in batch])
        if not any(waiting.attention for waiting in batch):
            return [(row, None) for row in self.predictor.logits(images).float().cpu()]
        logits, maps = self.predictor.logits_and_attention(images)
        rows = zip(logits.float().cpu(), maps.float().cpu(), batch, strict=True)
        return [(row, scores if waiting.attention else None) for row, scores, waiting in rows]
