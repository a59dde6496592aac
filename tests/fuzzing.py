"""How many examples a fuzzing test tries: few in ``make test``, PMTRANS_FUZZ times as many in ``make soak``."""

from __future__ import annotations

import os

FACTOR = int(os.environ.get("PMTRANS_FUZZ", "1"))


def examples(count: int) -> int:
    return count * FACTOR
