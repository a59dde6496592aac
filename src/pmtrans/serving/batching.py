"""Dynamic batching: concurrent requests share a forward pass, which costs far less than a pass for each image."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from pmtrans.inference.predictor import Predictor

Output = tuple[Tensor, Tensor | None]  # logits_K and the attention map, if asked for


@dataclass
class _Pending:
    image: Tensor
    attention: bool
    output: asyncio.Future[Output]


class Batcher:
    """Collects single transformed images for ``window`` seconds and runs them as one batch of up to ``batch_size``."""

    def __init__(self, predictor: Predictor, batch_size: int, window: float) -> None:
        self.predictor = predictor
        self.batch_size = batch_size
        self.window = window
        self.passes = 0
        self.works = False  # whether the last pass succeeded; none has been made yet
        self._queue: asyncio.Queue[_Pending] = asyncio.Queue()
        self._model_thread = ThreadPoolExecutor(1, "model")  # one pass at a time: passes do not compete for the cores
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Call it after the last request was answered."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._model_thread.shutdown()

    async def __call__(self, image: Tensor, attention: bool) -> Output:
        output: asyncio.Future[Output] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(_Pending(image, attention, output))
        return await output

    async def _work(self) -> None:
        while True:
            batch = [await self._queue.get()]
            if self._queue.qsize() + 1 < self.batch_size:
                await asyncio.sleep(self.window)
            while len(batch) < self.batch_size and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            await self._run([pending for pending in batch if not pending.output.cancelled()])

    async def _run(self, batch: list[_Pending]) -> None:
        if not batch:
            return
        try:
            outputs = await asyncio.get_running_loop().run_in_executor(self._model_thread, self._forward, batch)
        except Exception as error:  # these requests fail; the worker must survive for the next ones
            self.works = False
            for pending in batch:
                if not pending.output.done():
                    pending.output.set_exception(error)
            return
        self.works = True
        for pending, output in zip(batch, outputs, strict=True):
            if not pending.output.done():
                pending.output.set_result(output)

    def _forward(self, batch: list[_Pending]) -> list[Output]:
        self.passes += 1
        images = torch.stack([pending.image for pending in batch])
        if not any(pending.attention for pending in batch):
            return [(logits_K, None) for logits_K in self.predictor.logits(images).float().cpu()]
        logits, maps = self.predictor.logits_and_attention(images)
        rows = zip(logits.float().cpu(), maps.float().cpu(), batch, strict=True)
        return [(logits_K, scores if pending.attention else None) for logits_K, scores, pending in rows]
