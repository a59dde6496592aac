"""From runs: how well validators select, how well accuracy is estimated, how far the game is from an equilibrium.

python benchmarks/selection.py runs/a2w-0 runs/w2a-0 ...        (runs whose target has labels)

Markdown tables: the accuracy of the evaluation that each validator would have kept, and its rank correlation with the
truth over the run; estimate against truth; what each player could still gain. Target labels are used here only.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

from pmtrans.run.folder import RunFolder
from pmtrans.run.metrics import read_metrics

GAME = {"p_gain": "P could gain", "f_gain": "F could gain", "c_gain": "C could gain", "divergence": "divergence"}


def evaluations(run: Path) -> list[dict[str, Any]]:
    found = [line for line in read_metrics(RunFolder(run).metrics) if line.get("event") == "evaluation"]
    if not all("oracle_accuracy" in line for line in found):
        raise SystemExit(f"{run}: its target has no labels, so there is nothing to compare with.")
    return found


def show(header: list[str], rows: list[list[str]]) -> None:
    print("| " + " | ".join(header) + " |\n" + "|---" * len(header) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def choices(runs: list[Path]) -> None:
    """Accuracy of the evaluation each validator selects, per run, and its mean loss to the oracle."""
    histories = {run: evaluations(run) for run in runs}
    named_by_all = set.intersection(*({*history[0]} for history in histories.values()))
    validators = sorted(name for name in named_by_all if name.startswith("score."))
    for history in histories.values():  # Theorem 1's own measure of the gap: the smaller the better
        for line in history:
            line["score.game"] = -line.get("game.divergence", float("nan"))
    validators.append("score.game")
    chosen: dict[str, list[float]] = {}
    correlations: dict[str, list[float]] = {}
    oracle = [max(line["oracle_accuracy"] for line in history) for history in histories.values()]
    for name in validators:
        for history in histories.values():
            best = max(history, key=lambda line: (line[name], line["step"]))
            chosen.setdefault(name, []).append(best["oracle_accuracy"])
            truth = [line["oracle_accuracy"] for line in history]
            scores = [line[name] for line in history]
            if len(set(scores)) > 1:  # a validator that sees no difference has no order
                correlations.setdefault(name, []).append(float(spearmanr(scores, truth).statistic))
    summaries = [json.loads(RunFolder(run).summary.read_text(encoding="utf-8")) for run in runs]
    named = {f"`{name.removeprefix('score.')}`": values for name, values in chosen.items()}
    named |= {
        "**the rule (default)**": [summary["adapted"] for summary in summaries],
        "last": [summary["last"] for summary in summaries],
        "oracle": oracle,
    }
    rows = []
    for name, values in named.items():
        loss = statistics.mean(best - value for best, value in zip(oracle, values, strict=True))
        ranks = correlations.get("score." + name.strip("`"), [])
        rank = f"{statistics.mean(ranks):+.2f}" if ranks else ""
        rows.append([name, *(f"{100 * value:.1f}" for value in values), f"{100 * loss:.2f}", rank])
    show(["chosen by", *(run.name for run in runs), "mean loss to the oracle", "rank correlation"], rows)


def estimates(runs: list[Path]) -> None:
    rows = []
    for run in runs:
        summary = json.loads(RunFolder(run).summary.read_text(encoding="utf-8"))
        estimate, truth = summary["estimate"], summary["adapted"]
        interval = f"{100 * estimate['low']:.1f} to {100 * estimate['high']:.1f}"
        error = f"{100 * (estimate['accuracy'] - truth):+.1f}"
        gain = f"{100 * (truth - summary['source_only']):+.1f}" if summary["source_only"] is not None else ""
        figures = [f"{100 * truth:.1f}", f"{100 * estimate['accuracy']:.1f}", interval, error, gain]
        rows.append([run.name, *figures, summary["verdict"] or ""])
    show(["run", "truth", "estimate", "90 % interval", "error", "true gain", "verdict"], rows)


def game(runs: list[Path]) -> None:
    """What each player alone could still gain, at each evaluation."""
    rows = []
    for run in runs:
        for line in evaluations(run):
            if "game.p_gain" in line:
                rows.append([run.name, str(line["step"]), *(f"{line['game.' + key]:.3f}" for key in GAME)])
    show(["run", "step", *GAME.values()], rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    given = parser.parse_args()
    choices(given.runs)
    estimates(given.runs)
    game(given.runs)
