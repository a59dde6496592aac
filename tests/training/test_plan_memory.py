"""What ``--dry-run`` says of memory is what the steps then take, within 15 %: by real trainings on the CPU.

Fifteen of them: run with PMTRANS_SOAK=1 (``make soak`` does).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.skipif(not os.environ.get("PMTRANS_SOAK"), reason="takes minutes: PMTRANS_SOAK=1"),
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak of a moment"),
]


def test_the_memory_of_every_setting_is_known_within_15_percent() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "plan_memory.py"), "--json"]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = json.loads(told.splitlines()[-1])
    assert set(found) == {"full", "freeze_blocks", "lora", "checkpoint", "cached"}
    off = {
        f"{name}, {what}": size / sizes["taken"] - 1
        for name, sizes in found.items()
        for what, size in sizes.items()
        if what != "taken"
    }
    assert len(off) == 9
    assert {what: share for what, share in off.items() if abs(share) > 0.15} == {}
