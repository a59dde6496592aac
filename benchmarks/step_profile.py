"""The parts of a step in ms: the time of each function without its nested parts."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from step_subjects import DEVICE, Bare, OneStep, Subject

from pmtrans.backbones.attention import AttentionCall

PARTS = ("embedding", "mixing", "encode", "attention scores", "losses", "backward", "players")


class Stopwatch:
    """Times functions that it replaces; an inner one stops the clock of the outer one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.own: dict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._since = 0.0

    def on(self, owner: Any, name: str, part: str) -> None:
        function = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            self._turn(part)
            try:
                return function(*args, **kwargs)
            finally:
                self._turn(None)

        setattr(owner, name, timed)

    def _turn(self, part: str | None) -> None:
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()
        now = self.clock()
        if self._open:
            self.own[self._open[-1]] += now - self._since
        if part is None:
            self._open.pop()
        else:
            self._open.append(part)
        self._since = self.clock()

    def take(self) -> dict[str, float]:
        taken, self.own = dict(self.own), defaultdict(float)
        return taken


def profile_table(subjects: Mapping[str, Subject], repeats: int, clock: Callable[[], float]) -> str:
    """Markdown: median of each part, bare and step side by side."""
    columns = {}
    for name, subject in subjects.items():
        watch = watched(subject, clock)
        subject()
        watch.take()
        rounds = []
        for _ in range(repeats):
            subject()
            rounds.append(watch.take())
        columns[name] = {part: 1000 * statistics.median(one.get(part, 0.0) for one in rounds) for part in PARTS}
        columns[name]["sum"] = sum(columns[name].values())
    lines = ["| part | " + " | ".join(f"{name} (ms)" for name in columns) + " |", "| :-- |" + " --: |" * len(columns)]
    for part in (*PARTS, "sum"):
        lines.append(f"| {part} | " + " | ".join(f"{column[part]:.1f}" for column in columns.values()) + " |")
    return "\n".join(lines) + "\n"


def watched(subject: Subject, clock: Callable[[], float]) -> Stopwatch:
    """A stopwatch on every part of a step; what a forward pass does outside its parts are the losses."""
    watch = Stopwatch(clock)
    backbone = subject.model.backbone
    watch.on(backbone, "embed", "embedding")
    watch.on(backbone, "_encode", "encode")
    watch.on(subject.optimiser, "step", "players")
    if isinstance(subject, Bare):
        watch.on(subject, "loss", "losses")
        watch.on(subject, "backward", "backward")
    elif isinstance(subject, OneStep):
        watch.on(backbone, "attention_scores", "attention scores")
        watch.on(AttentionCall, "first_row", "attention scores")
        if hasattr(subject.method, "mixing"):
            watch.on(subject.method.mixing, "forward", "mixing")
        watch.on(subject.method, "forward", "losses")
        watch.on(subject.method, "after_step", "players")
        watch.on(torch.nn.utils, "clip_grad_norm_", "players")
        watch.on(subject.accelerator, "backward", "backward")
    return watch
