"""Numbers and names that the pages state are those of the code, of the other pages and of the tests they name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

import pmtrans
from pmtrans.bench import entry, paired_differences, tuning
from pmtrans.bench.ablations import ABLATIONS
from pmtrans.bench.benchmarks import BENCHMARKS
from pmtrans.bench.paper import table
from pmtrans.config import packaged_recipes
from pmtrans.config.sections import Config
from pmtrans.data import gate
from pmtrans.data.reading import target_labels
from pmtrans.inference.export import write
from pmtrans.methods import METHODS
from pmtrans.methods.parts import head_alignment
from pmtrans.methods.pmtrans_options import BEST, PMTransOptions
from pmtrans.mixing import MIXINGS
from pmtrans.pseudo_labels import LAGS, SETTLED, anchors, propagation
from pmtrans.selection import assessment, moved, rule, verdict
from pmtrans.serving import keys, workers
from pmtrans.serving.limits import ConnectionLimits, Limits
from pmtrans.settings import load_config
from pmtrans.training import old_places
from pmtrans.watching import reference
from pmtrans.watching.watch import SETTLES, WatchOptions

ROOT = Path(__file__).parents[2]
RESULTS = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
CONNECTIONS, LIMITS, WATCH = ConnectionLimits(), Limits(), WatchOptions()


def page(name: str) -> str:
    """The text of a page in one line, so that a sentence is found wherever its lines break."""
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def cells(line: str) -> list[str]:
    return [cell.strip(" *") for cell in line.strip().strip("|").split("|")]


def row(begin: str, text: str = RESULTS) -> list[str]:
    """The first row of a table that begins so."""
    return cells(next(line for line in text.splitlines() if line.startswith(begin)))


def percent(share: float) -> str:
    return f"{100 * share:.0f}"


STATED = [  # (page, what it says with the number of the code in its place)
    ("docs/guide.md", "DeiT-small at {} pixels, {} epochs", (Config().data.image_size, Config().train.epochs)),
    ("docs/report.md", "`unchanged` is a change of at most {} points", (percent(verdict.NOTABLE),)),
    ("docs/report.md", "Below {} target images the verdict is `cannot tell`", (verdict.LEAST_IMAGES,)),
    ("docs/report.md", "lost more than {} points of accuracy on the source", (percent(verdict.SOURCE_DROP),)),
    ("docs/report.md", "with its {} % interval", (percent(assessment.LEVEL),)),
    ("docs/report.md", "estimated gain is within {} points", (percent(rule.GAIN_TOLERANCE),)),
    ("docs/report.md", "whose source accuracy is within {} points", (percent(rule.TOLERANCE),)),
    ("docs/decisions.md", "source accuracy within {}, estimated gain within {}", (rule.TOLERANCE, rule.GAIN_TOLERANCE)),
    ("docs/decisions.md", "So {} methods, their in-batch losses", (len(METHODS),)),
    ("docs/decisions.md", "The limit of {} % was set", (percent(LAGS),)),
    ("docs/method.md", "agrees with its clusters on {} % of the target or more", (percent(SETTLED),)),
    ("docs/method.md", "{} steps of CE(source) + {} L_IM", (head_alignment.STEPS, head_alignment.INFORMATION)),
    ("docs/method.md", "nearest images of the target, {} rounds", (propagation.ROUNDS,)),
    ("docs/method.md", "`information={}`", (BEST["information"],)),
    ("docs/data.md", "{:,} pixels on a side", (gate.MAX_SIDE,)),
    ("docs/data.md", "{} million in all", (round(gate.MAX_PIXELS / 1e6),)),
    ("docs/data.md", "{} million at 16 or 32 bits", (gate.MAX_PIXELS // gate.DEEP_COST // 1_000_000,)),
    ("docs/data.md", "{} times as long as wide above a million", (gate.MAX_ASPECT,)),
    ("docs/data.md", "of {} labels or more", (target_labels.LEAST_LABELS,)),
    ("docs/deployment.md", "If it is above {:.0e} (", (write.TOLERANCE,)),
    ("docs/deployment.md", "more than {} megapixels", (LIMITS.pixels // 1_000_000,)),
    ("docs/deployment.md", "headers must arrive within {:.0f} s", (CONNECTIONS.header_seconds,)),
    ("docs/deployment.md", "bodies at {:.0f} kB/s", (CONNECTIONS.body_rate / 1000,)),
    ("docs/deployment.md", "at most {} connections ({} of one address)", (CONNECTIONS.in_all, CONNECTIONS.per_client)),
    ("docs/deployment.md", "and {} more are kept for `GET /health`", (CONNECTIONS.reserve,)),
    ("docs/deployment.md", "a key of fewer than {} characters", (keys._SHORT,)),
    ("docs/deployment.md", "{:.0f} s after the {} s is killed", (workers.GRACE, CONNECTIONS.stop_seconds)),
    ("docs/moving.md", "differ on less than {} % of the images", (percent(verdict.NOTABLE),)),
    ("docs/moving.md", "fewer than {} images", (verdict.LEAST_IMAGES,)),
    ("docs/moving.md", "the tolerance of the harm guard ({})", (moved.HARM,)),
    ("docs/moving.md", "at most {:,} images of each place", (old_places.MOST,)),
    ("docs/moving.md", "at most {} images of the run's target", (reference.MOST,)),
    ("docs/moving.md", "(`--window`, {} by default)", (WATCH.window,)),
    ("docs/moving.md", "`--false-alarms` ({})", (WATCH.false_alarms,)),
    ("docs/bench.md", "label smoothing ({} unless", (entry.LABEL_SMOOTHING,)),
    ("docs/bench.md", "with a {} % bootstrap interval", (percent(paired_differences.LEVEL),)),
    ("docs/bench.md", "Fewer than {} pairs have no interval", (paired_differences.LEAST_PAIRS,)),
]


@pytest.mark.parametrize(("name", "sentence", "numbers"), STATED)
def test_the_page_states_the_number_of_the_code(name: str, sentence: str, numbers: tuple[object, ...]) -> None:
    assert sentence.format(*numbers).replace("e-0", "e-") in page(name)


def test_numbers_that_pages_write_as_words_are_those_of_the_code() -> None:
    assert anchors.SHARE == 1 / 4  # moving.md: the quarter
    assert moved.FORGOTTEN == 0.1  # ten points
    assert WATCH.every == SETTLES == 10  # every ten seconds, younger than ten seconds
    assert rule.NARROWEST == 1 / 3  # decisions.md: a third of the classes
    assert propagation.NEIGHBOURS == 10  # method.md: the ten nearest
    assert target_labels.LEAST_KEPT == 5  # data.md: at least five
    assert Config().data.target_labels_kept == 0.2  # a fifth
    assert Config().data.holdout == 0.1  # decisions.md: a tenth
    assert len(MIXINGS) == 8  # results.md: three mixings that were run (of eight)
    assert LIMITS.full_size_images == 5  # deployment.md: five times that
    assert len(tuning.RATES) * len(tuning.STRENGTHS) == len(tuning.RATES_ALONE) == 4  # bench.md: four trials


def test_bench_names_every_benchmark_with_its_number_of_tasks() -> None:
    text = (ROOT / "docs" / "bench.md").read_text(encoding="utf-8")
    for name in BENCHMARKS:
        assert row(f"| `{name}` |", text)[1].startswith(f"{len(table(name).runs)}:"), name


def test_bench_names_every_ablation() -> None:
    assert [name for name in ABLATIONS if f"`{name}`" not in page("docs/bench.md")] == []


def test_the_page_of_the_method_has_every_switch_and_every_value_of_it() -> None:
    text = page("docs/method.md")
    for key, field in PMTransOptions.model_fields.items():
        if key != "label_smoothing":  # of every method
            assert f"`{key}`" in text, key
        for value in get_args(field.annotation):
            assert not isinstance(value, str) or f"`{value}`" in text, f"{key}={value}"
    assert [name for name in MIXINGS if f"`{name}`" not in text] == []
    assert [part for part in BEST if f"| `{part}" not in text] == []


def test_the_recipes_of_the_paper_play_its_game_from_its_start() -> None:
    """docs/method.md and docs/decisions.md say so."""
    names = [name for name in packaged_recipes() if name.split("/")[0] in BENCHMARKS]
    assert len(names) == 10
    for name in names:
        config = load_config(Path(name), (), {})
        assert (config.method["preset"], config.train.start) == ("paper", "pretrained"), name


def test_the_results_of_the_readme_are_those_of_the_results_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    told, untold = (
        [row(f"| {n} | `best`{how} |") for n in range(3)] for how in (", digits equally often", " with k-means")
    )
    demo = row("| the demo:", text)
    assert demo[1:3] == [told[0][2], told[0][4]]
    assert re.findall(r"\d+\.\d", demo[3]) == [seed[5] for seed in (*told, *untold)]
    default = RESULTS.split("### A second view of larger images")[1].split("Accuracy on the target")[1]
    tasks = {"amazon to webcam": "A2W", "webcam to amazon": "W2A", "dslr to amazon": "D2A", "amazon to dslr": "A2D"}
    for words, task in {**tasks, "mean of all six tasks": "mean"}.items():
        shown, measured = row(f"| Office-31, {words}", text), row(f"| {task} |", default)
        adapted = re.findall(r"\d+\.\d", shown[3])
        assert [*shown[1:3], adapted[0]] == [measured[column] for column in (1, 3, 6)], words
        if task != "mean":
            assert adapted == row(f"| {task} |", default.split("All seeds")[1])[5].split(", "), words


def test_the_means_of_the_page_of_the_method_are_those_of_the_results_page() -> None:
    mean = row("| mean, seed 0 |", RESULTS.split("### The preset best")[1])
    assert f"{mean[6]} % in the mean of Office-31's six tasks where `paper` has {mean[5]}." in page("docs/method.md")


def test_a_model_has_the_same_accuracy_in_every_table() -> None:
    """The table of full trainings and the tables of the default, of which it lists the runs."""
    trainings = RESULTS.split("### The full trainings")[1]
    half_way = RESULTS.split("### Half-way between probe and source stage")[1].split("All six tasks")[1]
    larger = RESULTS.split("### A second view of larger images")[1].split("Accuracy on the target")[1]
    seeds = larger.split("All seeds")[1]
    same_start = seeds.split("The same source stages and start")[1]
    for task, count in {"A2W": 3, "W2A": 3, "D2A": 3, "A2D": 2, "D2W": 2, "W2D": 2}.items():
        accuracies = row(f"| {task} |", seeds)[5].split(", ")
        assert len(accuracies) == count
        assert accuracies[0] == row(f"| {task} |", larger)[6]
        assert row(f"| {task} |", larger)[5] == row(f"| {task} |", half_way)[5].split(", ")[0]
        for seed, accuracy in enumerate(accuracies):
            if f"| {task}, `best`, seed {seed} |" in trainings:
                assert row(f"| {task}, `best`, seed {seed} |", trainings)[2] == accuracy
    for column, task in ((2, "A2W"), (3, "W2A"), (4, "D2A")):
        assert row("| `best` |", same_start)[column] == row(f"| {task} |", seeds)[5].split(", ")[0]
        for method in ("MCC", "BNM", "SHOT"):
            if f"| {task}, {method}, seed 0 |" in trainings:
                assert row(f"| {task}, {method}, seed 0 |", trainings)[2] == row(f"| {method} |", same_start)[column]


def test_the_untrained_clusters_are_the_same_in_both_tables() -> None:
    best = RESULTS.split("### The preset best")[1]
    untrained = row("| those of the untrained backbone |")
    assert untrained[1:4] == [row(f"| {task} |", best)[2] for task in ("A2W", "W2A", "D2A")]


@pytest.mark.parametrize("name", ["SECURITY.md", "docs/guarantees.md"])
def test_every_test_that_a_promise_names_is_there(name: str) -> None:
    """A file may be named without its folder where another row has it in full."""
    text = (ROOT / name).read_text(encoding="utf-8")
    files = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}
    last, found = "", 0
    for line in text.splitlines():
        for file, test in re.findall(r"`((?:tests/)?[\w/]*?test_\w+\.py)?(?:::(test_\w+))?`", line):
            if not (file or test):
                continue
            last, found = file or last, found + 1
            path = ROOT / last if last.startswith("tests/") else files[Path(last).name]
            assert path.is_file(), last
            assert not test or f"def {test}(" in path.read_text(encoding="utf-8"), f"{last}::{test}"
    assert found > 15


def test_the_page_of_the_api_names_every_function() -> None:
    text = page("docs/api.md")
    missing = [name for name in pmtrans.__all__ if name != "__version__" and f"`{name}`" not in text]
    assert missing == []


@pytest.mark.parametrize("name", ["README.md", "SECURITY.md", "CONTRIBUTING.md"])
def test_every_page_that_a_page_links_to_is_there(name: str) -> None:
    """Those in docs/ are checked when the site is built."""
    text = (ROOT / name).read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
