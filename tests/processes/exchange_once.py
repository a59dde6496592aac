"""One process of a group that exchanges one of each kind of value: ``python exchange_once.py OUT``.

Pickle's readers are taken away first, so an exchange that needs one fails.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from no_pickles import forbid_pickles
from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.data.domains import Data
from pmtrans.data.reading.read import Target
from pmtrans.errors import UserError
from pmtrans.processes.group import joined
from pmtrans.training.checkpoint import Snapshot
from pmtrans.training.resume import Opened

LABELLED = LabelledDomain(Domain(Path("a"), ("a/\udcff.png", "a/b.png")), (0, 1), ("cat", "düg"))
VALUES = (
    Data(LABELLED, LABELLED, Target(Domain(Path("b"), ("x",)), None, (), (("odd", 3),))),
    Snapshot(
        3,
        {
            "half": torch.tensor([1.5, -2.0]).bfloat16(),
            "one": torch.tensor(7),
            "none": torch.empty(0, 3),
            "many": torch.arange(6.0).reshape(2, 3).T,
        },
        1.25,
        [{"step": 1, "score": None, "warnings": ["w"]}],
    ),
    Opened.UNFINISHED,
    None,
)
KINDS = (Data, Target, Domain, LabelledDomain, Snapshot, Opened)


def complain(rank: int) -> None:
    if rank == 1:
        raise UserError("rank 1 found a mistake")


if __name__ == "__main__":
    forbid_pickles()
    out = Path(sys.argv[1])
    with joined() as processes:
        received = [processes.on_main(lambda value=value: value, *KINDS) for value in VALUES]  # type: ignore[misc]
        try:
            processes.together(lambda: complain(processes.rank))
        except UserError as error:
            said = str(error)
        same = [
            str(value) == str(expected) and type(value) is type(expected)
            for value, expected in zip(received, VALUES, strict=True)
        ]
        path = out / f"rank-{processes.rank}.json"
        path.write_text(json.dumps({"same": same, "said": said}), encoding="utf-8")
