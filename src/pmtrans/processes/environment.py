"""What the environment says of this process; without torch, for the command line."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pmtrans.errors import ConfigError, one_line
from pmtrans.signals import end_after

FOLDER = "PMTRANS_RENDEZVOUS"  # a folder of one user's, where the processes of one machine meet
SECRET = "PMTRANS_SECRET"  # of a group on several nodes
INTERFACE = "PMTRANS_INTERFACE"  # the network interface of the nodes' exchange
SECRET_FILE = "secret"
LAUNCHER = "PMTRANS_LAUNCHER"  # the process that started this one and must outlive it
AGENT = "TORCHELASTIC_RUN_ID"  # there where torchrun started this one; killed, it takes no process with it
GRACE = 20.0  # seconds to finish the step and save, once the launcher is gone


def is_started() -> bool:
    """Whether torchrun, Slurm or ``--processes`` started this process as one of several."""
    return whole_number(os.environ, "WORLD_SIZE", 1) > 1


def whole_number(environment: Mapping[str, str], name: str, default: int, least: int = 0, most: int = 2**31 - 1) -> int:
    """A variable of the environment, where a launcher may have set it. By default it is as large as torch can count."""
    text = environment.get(name, str(default))
    if not text.isdecimal() or len(text) > len(str(most)) or not least <= int(text) <= most:
        raise ConfigError(
            f"The variable {name} of the environment is {one_line(text, 60)!r}, "
            f"not a whole number from {least} to {most}."
        )
    return int(text)


def is_main() -> bool:
    """Whether this is the process that talks."""
    return os.environ.get("RANK", "0") == "0"


def is_first_here() -> bool:
    """Whether this is the process that says on its machine what ends all: the main one may be on another, or lost."""
    return os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0")) == "0"


def is_one_machine(environment: Mapping[str, str]) -> bool:
    """Whether all processes of the group run here."""
    return environment.get("LOCAL_WORLD_SIZE") == environment.get("WORLD_SIZE")


def end_with_launcher(environment: Mapping[str, str], grace: float = GRACE) -> None:
    """End this process when its launcher is gone, however that ended: first as SIGTERM does, then at once.

    A process that trained on would hold the run folder, and nobody would be left to stop it.
    """
    if LAUNCHER not in environment and AGENT not in environment:
        return
    launcher = whole_number(environment, LAUNCHER, os.getppid())

    def loss() -> None:
        while os.getppid() == launcher:
            time.sleep(0.5)

    end_after(loss, grace)


@contextmanager
def private_folder() -> Iterator[Path]:
    """Where the processes of one machine meet, with a secret in it; nobody but this user can open the folder."""
    with TemporaryDirectory(prefix="pmtrans-", ignore_cleanup_errors=True) as name:  # mode 0700
        folder = Path(name)
        (folder / SECRET_FILE).write_bytes(secrets.token_bytes(32))
        yield folder
