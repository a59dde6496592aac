"""Time and memory of the alignment part of PMTrans beside one layer of cross-attention, as a table and a plot.

    python benchmarks/complexity.py --out runs/complexity

Four sweeps (patches, width, classes, batch); seconds on one core. The same as ``pmtrans bench complexity``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pmtrans.bench.complexity import measure, table, write_complexity


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/complexity"))
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    measured = measure(repeats=given.repeats)
    print(table(measured), end="")
    for path in write_complexity(given.out, measured):
        print(path)


if __name__ == "__main__":
    main()
