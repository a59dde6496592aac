"""Runs as tasks of a Ray cluster: local, or at an address. All machines must see ``--data`` and ``--out``.

Ray starts a run where its CPUs and GPUs are free. When a worker is lost, Ray gives its run to another one, which
resumes from the last checkpoint; the result is the same as without the interruption.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from pmtrans.bench.engine import work
from pmtrans.bench.execute import Outcome
from pmtrans.bench.jobs import Job
from pmtrans.processes.ray_cluster import RayCluster


class RayEngine:
    """``cpus`` and ``gpus`` are the share of one run; fractions of a GPU are allowed."""

    lost: tuple[type[BaseException], ...] = ()  # Ray itself retries a lost run on another worker

    def __init__(self, address: str | None = None, cpus: float = 1, gpus: float = 0, slots: int | None = None) -> None:
        self._cluster = RayCluster(address, cpus, gpus, task="run")
        self.slots = slots or self._cluster.slots
        self._remote = self._cluster.remote(work)
        self._references: list[Any] = []

    def submit(self, job: Job) -> Future[Outcome]:
        reference = self._remote.remote(job)
        self._references.append(reference)
        future: Future[Outcome] = reference.future()
        return future

    def stop(self) -> None:
        for reference in self._references:
            self._cluster.ray.cancel(reference)  # arrives as SIGINT: the run saves and ends

    def close(self) -> None:
        self._cluster.close()
