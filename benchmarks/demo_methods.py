"""Every method on the demo task over several seeds, from one source stage a seed, compared with that source stage.

    python benchmarks/demo_methods.py --out runs/demo-methods
    python benchmarks/demo_methods.py --out runs/demo-methods --methods dann,pmtrans:best --seeds 0 train.epochs=4

The protocol is that of docs/bench.md: source-only is trained once a seed, and every method starts at its end with the
same label smoothing and as many further steps. Tell a preset or switches after a colon, as for `pmtrans bench`; PMTrans
without one is the paper's. The same command resumes, further methods and seeds join; `table.md` is written after each
run, failures stand below it. Processes side by side take different seeds; the whole command then prints one table.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from pmtrans.backbones.digits_vit import weights_path
from pmtrans.bench.entry import Entry, SharedSettings, parse_entries
from pmtrans.bench.grids import not_reproduced
from pmtrans.bench.jobs import slug
from pmtrans.config import settings_from_flags
from pmtrans.data.demo.digits import write_digits
from pmtrans.demo import SETTINGS
from pmtrans.errors import UserError, one_line
from pmtrans.files import write_text
from pmtrans.methods import METHODS
from pmtrans.progress import Reporter
from pmtrans.run.summary import Summary
from pmtrans.training.train import train

SOURCE_ONLY = Entry("source_only")
ALL = ",".join(("pmtrans:best", *METHODS))
MEASURES = {"adapted": "label-free", "last": "last", "oracle": "oracle"}


def main() -> None:
    """Do the missing runs one by one and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[0, 1, 2])
    parser.add_argument("--methods", default=ALL)
    parser.add_argument("overrides", nargs="*", help="any setting, such as train.epochs=6")
    given = parser.parse_args()
    source, target = write_digits(given.out / "data")
    flags = {**settings_from_flags(source=source, target=target, weights=weights_path()), **SETTINGS}
    settings = SharedSettings(overrides=tuple(given.overrides), flags=flags)
    entries = [SOURCE_ONLY, *(entry for entry in parse_entries(given.methods) if entry != SOURCE_ONLY)]
    settings.check(entries)
    text = compare(given.out, entries, given.seeds, settings)
    print(text)
    if "failed:" in text:
        raise SystemExit(1)


def compare(out: Path, entries: Sequence[Entry], seeds: Sequence[int], settings: SharedSettings) -> str:
    """All methods of the first seed, then of the next; returns the table."""
    summaries: dict[tuple[str, int], Summary] = {}
    failures: list[str] = []
    text = ""
    for seed in seeds:
        for entry in entries:
            folder = out / slug(entry.name) / str(seed)
            start_from = None if entry == SOURCE_ONLY else out / slug(SOURCE_ONLY.name) / str(seed)
            print(f"{entry.name}, seed {seed} ...", file=sys.stderr)
            try:
                config = settings.configure(entry, {"seed": seed})
                quiet = Reporter(quiet=True)
                summaries[entry.name, seed] = train(config, folder, quiet, start_from=start_from)
            except (UserError, RuntimeError) as error:  # the other runs continue
                failures.append(f"- failed: {entry.name}, seed {seed}: {one_line(error)}")
            remarks = [*not_reproduced([entry.method for entry in entries]), *failures]
            text = "\n\n".join([table(summaries), *remarks])
            if summaries:
                write_text(out / "table.md", text + "\n")
            if (SOURCE_ONLY.name, seed) not in summaries:  # nothing to start from
                break
    return text


def table(summaries: dict[tuple[str, int], Summary]) -> str:
    """Markdown, in percent: mean and standard deviation over the finished seeds, sorted by label-free gain."""
    rows = []
    for method in dict.fromkeys(name for name, _ in summaries):
        mine = {seed: summary for (name, seed), summary in summaries.items() if name == method}
        gains = [gain(summary, summaries[SOURCE_ONLY.name, seed]) for seed, summary in mine.items()]
        cells = [spread([100 * getattr(summary, measure) for summary in mine.values()]) for measure in MEASURES]
        cells += [f"{statistics.mean(gains):+.1f}", f"{min(gains):+.1f}", str(len(mine))]
        rows.append((statistics.mean(gains), f"| `{method}` | {' | '.join(cells)} |"))
    header = f"| method | {' | '.join(MEASURES.values())} | gain, label-free | smallest gain | seeds |"
    return "\n".join([header, "|---" * (len(MEASURES) + 4) + "|", *(text for _, text in sorted(rows, reverse=True))])


def gain(adapted: Summary, source_only: Summary) -> float:
    """In points, of the evaluation that was chosen without target labels."""
    assert adapted.adapted is not None
    assert source_only.adapted is not None
    return 100 * (adapted.adapted - source_only.adapted)


def spread(values: list[float]) -> str:
    mean = statistics.mean(values)
    return f"{mean:.1f} ({statistics.stdev(values):.1f})" if len(values) > 1 else f"{mean:.1f}"


if __name__ == "__main__":
    main()
