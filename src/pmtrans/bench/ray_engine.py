"""Runs as tasks of a Ray cluster: local, or at an address. All machines must see ``--data`` and ``--out``.

Ray starts a run where its CPUs and GPUs are free. When a worker is lost, Ray gives its run to another one, which
resumes from the last checkpoint; the result is the same as without the interruption.
"""

from __future__ import annotations

import os
from concurrent.futures import Future
from typing import Any

from pmtrans.bench.engine import work
from pmtrans.bench.execute import Outcome
from pmtrans.bench.jobs import Job
from pmtrans.errors import ConfigError, one_line

RETRIES = 3
_LOCAL: dict[str, Any] = {  # runs exchange paths only: a small object store is enough
    "include_dashboard": False,
    "object_store_memory": 80 * 2**20,
}


class RayEngine:
    """``cpus`` and ``gpus`` are the share of one run; fractions of a GPU are allowed."""

    lost: tuple[type[BaseException], ...] = ()  # Ray itself retries a lost run on another worker

    def __init__(self, address: str | None = None, cpus: float = 1, gpus: float = 0, slots: int | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise ConfigError("--engine ray needs Ray: pip install 'pmtrans[ray]'.") from None
        self._ray = ray
        address = address or os.environ.get("RAY_ADDRESS") or "local"
        local = address == "local"
        self._owns_cluster = not ray.is_initialized()
        if self._owns_cluster:
            try:
                ray.init(address=address, log_to_driver=False, **(_LOCAL if local else {}))
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise ConfigError(f"No Ray cluster at {one_line(address)!r}: {one_line(error, 150)}") from None
        total = ray.cluster_resources()
        for name, share in (("CPU", cpus), ("GPU", gpus)):
            if share > total.get(name, 0):
                have = total.get(name, 0)
                self.close()
                raise ConfigError(f"A run asks for {share:g} {name}, and the Ray cluster has {have:g}: ask for less.")
        shares = [total.get(name, 0) / share for name, share in (("CPU", cpus), ("GPU", gpus)) if share]
        self.slots = slots or max(1, int(min(shares, default=1)))
        environment = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(max(1, int(cpus)))}
        if "PYTHONPATH" in os.environ and local:
            environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
        self._remote: Any = ray.remote(work).options(
            num_cpus=cpus,
            num_gpus=gpus,
            max_retries=RETRIES,
            retry_exceptions=False,
            runtime_env={"env_vars": environment},
        )
        self._references: list[Any] = []

    def submit(self, job: Job) -> Future[Outcome]:
        reference = self._remote.remote(job)
        self._references.append(reference)
        future: Future[Outcome] = reference.future()
        return future

    def stop(self) -> None:
        for reference in self._references:
            self._ray.cancel(reference)  # arrives as SIGINT: the run saves and ends

    def close(self) -> None:
        if self._owns_cluster:
            self._ray.shutdown()
