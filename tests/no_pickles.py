"""Takes pickle's readers away from this process: an exchange that needs one fails."""

from __future__ import annotations

import pickle

import torch.distributed


class NoPickles:
    """In the place of pickle's readers: whoever gets into a group must find nothing that builds objects for it."""

    def __init__(self, *given: object, **named: object) -> None:
        raise AssertionError("a pickle is read")


def forbid_pickles() -> None:
    for name in ("load", "loads", "Unpickler"):
        setattr(pickle, name, NoPickles)
    torch.distributed.distributed_c10d._unpickler = NoPickles  # type: ignore[assignment]
