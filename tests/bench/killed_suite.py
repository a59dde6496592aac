"""Run as a program: ``bench`` in a forked child, killed at each of some moments, then once more to its end.

    python killed_suite.py OUT PATTERN... -- ARGUMENT...

A child is killed as soon as a file under OUT matches its PATTERN. Forked, as importing torch each time takes longer
than all the training.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path


def main() -> None:
    divider = sys.argv.index("--")
    out, patterns, arguments = Path(sys.argv[1]), sys.argv[2:divider], sys.argv[divider + 1 :]
    import pmtrans.bench.suite  # noqa: F401  (torch, before the forks)

    for pattern in [*patterns, None]:
        child = os.fork()
        if child == 0:
            from pmtrans.cli import main as command

            sys.argv = ["pmtrans", "bench", *arguments]
            command()
            os._exit(0)  # typer has left already, by SystemExit
        while pattern is not None and not list(out.glob(pattern)):
            assert os.waitpid(child, os.WNOHANG) == (0, 0), f"the suite ended before {pattern}"
            time.sleep(0.01)
        if pattern is not None:
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(f"ended {status}")


if __name__ == "__main__":
    main()
