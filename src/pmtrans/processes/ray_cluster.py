"""A Ray cluster, started here or found at an address: ``predict``, ``check``, ``bench`` and ``study`` share this start.

Ray starts a task where its CPUs and GPUs are free, and gives the task of a killed worker to another one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from pmtrans.errors import ConfigError, one_line
from pmtrans.machine import CORES

RETRIES = 3  # of a task whose worker was killed
_LOCAL: dict[str, Any] = {  # tasks exchange paths and rows: a small object store is enough
    "include_dashboard": False,
    "object_store_memory": 80 * 2**20,
}
_INHERITED = ("PYTHONPATH", "PMTRANS_CACHE")  # by tasks on this machine


class RayCluster:
    """``cpus`` and ``gpus`` are the share of one ``task``; fractions of a GPU are allowed.

    A cluster that was connected to before is used as it is, and left running by ``close``.
    """

    def __init__(self, address: str | None = None, cpus: float = 1, gpus: float = 0, task: str = "task") -> None:
        try:
            import ray
        except ImportError:
            raise ConfigError("--engine ray needs Ray: pip install 'pmtrans[ray]'.") from None
        self.ray: Any = ray
        address = address or os.environ.get("RAY_ADDRESS") or "local"
        local = address == "local"
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            try:
                ray.init(address=address, log_to_driver=False, **(_LOCAL if local else {}))
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise ConfigError(f"No Ray cluster at {one_line(address)!r}: {one_line(error, 150)}") from None
        total = ray.cluster_resources()
        shares = [(name, share) for name, share in (("CPU", cpus), ("GPU", gpus)) if share]
        for name, share in shares:
            if share > (has := total.get(name, 0)):
                self.close()
                raise ConfigError(f"A {task} asks for {share:g} {name}, and the Ray cluster has {has:g}: ask for less.")
        self.slots = max(1, int(min((total[name] / share for name, share in shares), default=1)))
        own = str(max(1, int(cpus)))
        environment = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or own, CORES: own}
        if local:
            environment |= {name: os.environ[name] for name in _INHERITED if name in os.environ}
        self._options = {
            "num_cpus": cpus,
            "num_gpus": gpus,
            "max_retries": RETRIES,
            "retry_exceptions": False,
            "runtime_env": {"env_vars": environment},
        }

    def remote(self, function: Callable[..., Any]) -> Any:
        """``function`` as a task of this cluster."""
        return self.ray.remote(function).options(**self._options)

    def close(self) -> None:
        if self._is_ours:
            self.ray.shutdown()
