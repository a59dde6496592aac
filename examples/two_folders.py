"""Adapt a model from one folder of images to another, predict with it, and write its report.

    python examples/two_folders.py --out runs/two-folders

The folders hold digits that are part of the package: printed ones are the labelled source, handwritten ones the
target. Few images and few steps: it takes well under a minute on a CPU, downloads nothing, and shows the way rather
than the accuracy (`make demo` trains on all the digits). With photographs of your own, leave weights and settings out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pmtrans
from pmtrans.backbones.digits_vit import weights_path
from pmtrans.data.demo.digits import write_digits
from pmtrans.demo import SETTINGS
from pmtrans.report.page import write_report


def main() -> None:
    parser = argparse.ArgumentParser(description="Adapt from one folder of images to another.")
    parser.add_argument("--out", type=Path, default=Path("runs/two-folders"), help="where images and run are written")
    parser.add_argument("--steps", type=int, default=30, help="training steps of each stage")
    arguments = parser.parse_args()

    # two folders, a folder per class in each
    source, target = write_digits(arguments.out / "digits", per_class=24)

    # a linear probe, a source-only model, then the adapted one; the same call resumes a run that was interrupted
    quick = {
        "train.max_steps": arguments.steps, "train.batch_size": 24, "train.learning_rate": 5e-4,
        "train.evaluate_every": 15, "data.holdout": 0.2,
    }  # fmt: skip
    run = pmtrans.adapt(
        source, target, out=arguments.out / "run", weights=weights_path(), settings={**SETTINGS, **quick}
    )

    # did it help? The verdict and the estimate are made without target labels
    summary = run.summary
    print("verdict:", summary.verdict, "-", summary.verdict_reason)
    print("shipped:", summary.shipped, "-", summary.shipped_reason)
    if summary.estimate is not None:
        print("estimated accuracy: {accuracy:.2f} ({low:.2f} to {high:.2f})".format(**summary.estimate))

    # this target happens to have labels, so the true figures can be shown; they chose nothing
    print("true accuracy:", {name: getattr(summary, name) for name in ("probe", "source_only", "adapted")})

    # predict
    for row in run.predict(sorted(target.rglob("*.png"))[::48]):
        print(Path(row.path).relative_to(target), "->", row.label, f"{row.probability:.2f}")

    # one page to look at; figures=True would write each figure as PNG and SVG too
    print("report:", write_report(run.path, figures=False))


if __name__ == "__main__":
    main()
