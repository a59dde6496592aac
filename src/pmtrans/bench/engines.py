"""The engine that ``--engine``, ``--parallel`` and the shares of a Ray cluster name."""

from __future__ import annotations

from pmtrans.bench.display import Display, RunReporter
from pmtrans.bench.engine import Engine, LocalProcesses, Serial


def create_engine(
    name: str, display: Display, parallel: int = 1, ray_address: str | None = None, cpus: float = 1, gpus: float = 0
) -> Engine:
    """One process, several, or Ray; a cluster is connected to (or started) here."""
    if name == "ray":
        from pmtrans.bench.ray_engine import RayEngine

        return RayEngine(ray_address, cpus, gpus, parallel if parallel > 1 else None)
    return LocalProcesses(parallel) if parallel > 1 else Serial(lambda job: RunReporter(display, job))
