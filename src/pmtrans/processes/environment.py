"""What the environment says of this process; without torch, for the command line."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

FOLDER = "PMTRANS_RENDEZVOUS"  # a folder of one user's, where the processes of one machine meet
SECRET = "PMTRANS_SECRET"  # of a group on several nodes
INTERFACE = "PMTRANS_INTERFACE"  # the network interface of the nodes' exchange
SECRET_FILE = "secret"


def is_started() -> bool:
    """Whether torchrun, Slurm or ``--processes`` started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_main() -> bool:
    """Whether this is the process that talks."""
    return os.environ.get("RANK", "0") == "0"


def is_one_machine(environment: Mapping[str, str]) -> bool:
    """Whether all processes of the group run here."""
    return environment.get("LOCAL_WORLD_SIZE") == environment.get("WORLD_SIZE")


@contextmanager
def private_folder() -> Iterator[Path]:
    """Where the processes of one machine meet, with a secret in it; nobody but this user can open the folder."""
    with TemporaryDirectory(prefix="pmtrans-", ignore_cleanup_errors=True) as name:  # mode 0700
        folder = Path(name)
        (folder / SECRET_FILE).write_bytes(secrets.token_bytes(32))
        yield folder
