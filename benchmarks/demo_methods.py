"""Every method on the demo task over several seeds, compared with source-only with the same steps.

    python benchmarks/demo_methods.py --out runs/demo-methods [--seeds 0,1,2] [--methods a,b] [train.epochs=6 ...]

Each run is that of `pmtrans demo --method NAME --seed N`, without figures. Finished runs are skipped, so the same
command resumes where it was stopped; failures are listed below the table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

from pmtrans.data.demo.digits import write_digits
from pmtrans.demo import demo_config
from pmtrans.errors import UserError, one_line
from pmtrans.methods import METHODS
from pmtrans.progress import Reporter
from pmtrans.run.folder import RunFolder
from pmtrans.training.train import train

MEASURES = {"adapted": "label-free", "last": "last", "oracle": "oracle"}


def main() -> None:
    """Do the missing runs one by one and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[0, 1, 2])
    parser.add_argument("--methods", type=lambda text: text.split(","), default=list(METHODS))
    parser.add_argument("overrides", nargs="*", help="any setting, such as train.epochs=6")
    arguments = parser.parse_args()
    names = ["source_only", *(name for name in arguments.methods if name != "source_only")]
    folders = {(name, seed): arguments.out / name / str(seed) for seed in arguments.seeds for name in names}
    digits = write_digits(arguments.out / "data")
    problems = {key: run(*key, folder, digits, arguments.overrides) for key, folder in folders.items()}
    print(table(folders))
    failed = [f"{name}, seed {seed}: {problem}" for (name, seed), problem in problems.items() if problem]
    if failed:
        raise SystemExit("\n".join(failed))


def run(name: str, seed: int, out: Path, digits: tuple[Path, Path], overrides: list[str]) -> str:
    """Returns the error, or an empty string. Source-only is the baseline of all methods, so none trains its own."""
    if RunFolder(out).summary.exists():
        return ""
    print(f"{name}, seed {seed} ...", file=sys.stderr)
    try:
        config = demo_config(*digits, seed, name, ["train.baseline=false", *overrides])
        train(config, out, Reporter(quiet=True))
    except (UserError, RuntimeError) as error:  # the other runs continue
        return one_line(error)
    return ""


def table(folders: dict[tuple[str, int], Path]) -> str:
    """Markdown, in percent: mean and standard deviation over the finished seeds, sorted by label-free gain."""
    summaries = {key: RunFolder(folder).summary for key, folder in folders.items()}
    runs = {key: json.loads(path.read_text(encoding="utf-8")) for key, path in summaries.items() if path.exists()}
    rows = []
    for method in dict.fromkeys(name for name, _ in runs):
        mine = {seed: summary for (name, seed), summary in runs.items() if name == method}
        gains = [100 * (row["adapted"] - runs["source_only", seed]["adapted"]) for seed, row in mine.items()]
        cells = [spread([100 * row[measure] for row in mine.values()]) for measure in MEASURES]
        cells += [f"{statistics.mean(gains):+.1f}", f"{min(gains):+.1f}", str(len(mine))]
        rows.append((statistics.mean(gains), f"| `{method}` | {' | '.join(cells)} |"))
    header = f"| method | {' | '.join(MEASURES.values())} | gain, label-free | smallest gain | seeds |"
    return "\n".join([header, "|---" * (len(MEASURES) + 4) + "|", *(text for _, text in sorted(rows, reverse=True))])


def spread(values: list[float]) -> str:
    mean = statistics.mean(values)
    return f"{mean:.1f} ({statistics.stdev(values):.1f})" if len(values) > 1 else f"{mean:.1f}"


if __name__ == "__main__":
    main()
