"""Hostile commands, through the real command line: streams, paths, names, settings, forged files. One line each."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from campaign.disks import commands
from campaign.report import Report
from campaign.runs import SETTINGS, train_command
from campaign.sessions import Ended, run, run_interpreter
from PIL import Image

CASE = "one process"
AT_ONCE = 120.0  # seconds, on a busy machine: a report takes six of a core


@dataclass(frozen=True)
class Hostile:
    """A command, and what its end must be."""

    kind: str
    name: str
    run: Callable[[], Ended]
    codes: tuple[int, ...] = (0, 1, 2)

    def fault(self, ended: Ended) -> str:
        found = ended.fault(self.codes)
        lines = [line for line in ended.text.splitlines() if line.strip()]
        finds = self.name.startswith("check")  # its findings are not called errors
        is_said = self.kind == "streams" or any(finds or "rror" in line for line in lines)
        if not found and ended.code in (1, 2) and not is_said:
            found = f"exit code {ended.code} without a reason"
        return f"{self.name}: {found}" if found else ""


KINDS = (
    "streams", "places to write to", "names", "settings", "recipes", "forged files of a run", "model folders",
    "lists and tables",
)  # fmt: skip


def hostile_commands(
    report: Report, share: float, folder: Path, seed: int, steps: int, kinds: Collection[str] = KINDS
) -> None:
    """All of them, or a share drawn at random."""
    whole = folder / f"whole {CASE}"
    if not whole.is_dir():
        run(train_command(folder / "data", whole, CASE, steps))
    cases = [*_streams(folder, whole), *_paths(folder, whole), *_names(folder, whole), *_settings(folder)]
    cases += [*_forged(folder, whole, steps), *_models(folder, whole), *_lists(folder)]
    if share < 1:
        cases = random.Random(seed).sample(cases, max(1, int(share * len(cases))))
    seen: Counter[str] = Counter()
    for case in (case for case in cases if case.kind in kinds):
        seen[case.kind] += 1
        if seen[case.kind] <= report.tried("hostile commands", case.kind):
            continue
        ended = case.run()
        fault = case.fault(ended)
        counts = {"done" if ended.code == 0 else "a line": 1}
        report.add("hostile commands", case.kind, 1, [fault] if fault else [], counts)


def _streams(folder: Path, whole: Path) -> Iterator[Hostile]:
    """Standard output or error that is full, closed, or read by nobody."""
    data, out = folder / "data", folder / "streams"
    target = str(data / "target")
    verbs = {
        "predict": ["predict", str(whole), target, "--workers", "0"],
        "train": train_command(data, out, CASE, 3, ("train.baseline=false", "--overwrite")),
        "report": ["report", str(whole), "--out", str(folder / "streams.html")],
        "evaluate": ["evaluate", str(whole), "--data", target],
    }
    for verb, arguments in verbs.items():
        for first, second in (("full", "pipe"), ("pipe", "full"), ("full", "full"), ("closed", "closed"),
                              ("closed", "pipe"), ("pipe", "closed"), ("unread", "pipe")):  # fmt: skip
            name = f"{verb}, stdout {first}, stderr {second}"
            yield Hostile("streams", name, _with_streams(arguments, first, second), (0, 1, 2, 120))


def _with_streams(arguments: list[str], out: str, error: str) -> Callable[[], Ended]:
    def start() -> Ended:
        def close() -> None:
            for stream, kind in ((1, out), (2, error)):
                if kind == "closed":
                    os.close(stream)

        with contextlib.ExitStack() as opened:
            streams: dict[str, Any] = {}
            for name, kind in (("stdout", out), ("stderr", error)):
                streams[name] = subprocess.PIPE if kind == "pipe" else subprocess.DEVNULL
                if kind == "full":
                    streams[name] = opened.enter_context(open("/dev/full", "wb"))
                if kind == "unread":
                    read, write = os.pipe()
                    os.close(read)
                    streams[name] = opened.enter_context(os.fdopen(write, "wb"))
            return run_interpreter(arguments, preexec_fn=close, **streams)

    return start


PLACES = {
    "a line break": "new\nline",
    "not UTF-8": "\udcff\udcfe",
    "a NUL": "a\0b",
    "300 characters": "x" * 300,
    "5,000 characters": "y/" * 2500,
    "markup and terminal codes": "<b>\x1b[31m",
    "only spaces": "   ",
    "below a file": "file/below",
    "a folder": "folder",
    "a pipe": "pipe",  # not a device: where one is replaced, the machine has lost it
    "under /proc": "../../../../../../../../proc/none/out",
}


def _paths(folder: Path, whole: Path) -> Iterator[Hostile]:
    """Places to write to that are no places."""
    place = folder / "places"
    (place / "folder").mkdir(parents=True, exist_ok=True)
    (place / "file").write_text("a file")
    with contextlib.suppress(FileExistsError):
        os.mkfifo(place / "pipe")
    (place / "folder" / "inside.txt").write_text("not empty")
    for title, name in PLACES.items():
        out = place / name
        for verb, arguments in commands(whole, folder / "data", Path("OUT")).items():
            if verb in ("export onnx", "predict jsonl"):
                continue
            suffix = Path(arguments[arguments.index("--out") + 1]).suffix
            given = list(arguments)
            given[arguments.index("--out") + 1] = str(out) + ("" if title in ("a folder", "a pipe") else suffix)
            yield Hostile("places to write to", f"{verb} into {title}", _session(given))
        settings = train_command(folder / "data", out, CASE, 3, ("train.baseline=false",))
        yield Hostile("places to write to", f"train into {title}", _session(settings))


def _session(arguments: list[str], limit: float = AT_ONCE) -> Callable[[], Ended]:
    return lambda: run(arguments, limit=limit)


def _names(folder: Path, whole: Path) -> Iterator[Hostile]:
    """Names of classes and images that are not UTF-8, break lines, or are markup."""
    place = folder / "names"
    names = ["cl\udcffass", "line\nbreak", "<script>", "=cmd()", "\x1b[31mred", "a,b\"c'"]
    for number, name in enumerate(names):
        for domain in ("source", "target"):
            (place / domain / name).mkdir(parents=True, exist_ok=True)
            for image in range(12):  # enough to hold some out
                pixels = np.random.default_rng(number).integers(0, 256, (36, 36, 3), dtype=np.uint8)
                with open(os.fsencode(place / domain / name / f"{image}\udcfe\n.png"), "wb") as file:
                    Image.fromarray(pixels).save(file, "PNG")
    target = str(place / "target")
    for suffix in ("csv", "jsonl", "parquet"):
        out = str(folder / f"names.{suffix}")
        arguments = ["predict", str(whole), target, "--workers", "0", "--out", out]
        yield Hostile("names", f"predict {suffix}", _session(arguments), (0,))
    yield Hostile("names", "predict to stdout", _session(["predict", str(whole), target, "--workers", "0"]), (0,))
    domains = ["--source", str(place / "source"), "--target", target]
    yield Hostile("names", "check", _session(["check", *domains, "--workers", "1"]), (0, 1))
    yield Hostile("names", "check as JSON", _session(["check", *domains, "--workers", "1", "--json"]), (0, 1))
    trained = folder / "names-run"
    yield Hostile("names", "train", _session(train_command(place, trained, CASE, 3, ("--overwrite",))), (0,))
    for verb, arguments in commands(trained, place, folder / "names-out").items():
        if verb in ("report", "label-these", "predict parquet"):
            (folder / "names-out").mkdir(exist_ok=True)
            yield Hostile("names", f"{verb} of that run", _session(arguments), (0,))


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
OVERRIDES = [
    f"seed={2**70}", "seed=-1", "seed=1e400", "seed=2024-13-45", "seed=" + "9" * 5000, "seed=!!python/name:os.system",
    "data.workers=1000000", "data.workers=-1", "data.image_size=1000000000", "data.image_size=0",
    "train.batch_size=99999999999", "train.batch_size=0", "train.learning_rate=.nan", "train.learning_rate=-.inf",
    "train.max_steps=0", "train.epochs=1e99", "train.loggers=[1]", "train.loggers={a: b}", "method={}.x", "method=[]",
    "method.name=[]", "method.name=../../etc/passwd", "method.preset=\x1b[31m", "backbone.options=7",
    "backbone.options={depth: 1000000000}", "backbone.options={embed_dim: -4}", "backbone.options={depth: x}",
    "backbone.options={img_size: 100000}", "backbone.name=../x", "backbone.name=hf-hub:", "backbone.name=",
    'data.source="a\\0b"', 'data.cache="a\\0b"', "data.cache=/proc/none", "data.classes=/dev/zero",
    "data.root=/dev/zero",
    "backbone.weights=/dev/zero", "backbone.weights=/dev/null", 'backbone.weights="\\0"', "=", "a", "a.b.c.d=1", ".=1",
    "train=1", "data.target=7", "data.source=/dev/zero", "a: " + "[" * 5000, "x=" + "{a: " * 5000,
    "train.keep_checkpoints=-1", "train.evaluate_every=0", "data.holdout=7", "data.on_bad_image=explode",
    "selection.ship=other", "train.precision=fp7", "train.warmup_steps=-5", "train.log_every=0",
]  # fmt: skip
RECIPES = {
    "billion laughs": LAUGHS, "a cycle": "a: &a [*a]", "deep lists": "a: " + "[" * 5000, "a date": "seed: 2024-13-45",
    "5,000 digits": "seed: " + "9" * 5000, "a tag": "a: !!python/object/apply:os.system ['true']", "a NUL": "a: \0",
    "a list": "[1, 2]", "a number": "7", "unhashable": "? [a]\n: b", "large": "a: " + "x" * 300_000,
    "wrong types": "train: [1]\ndata: 3\n", "merge": "<<: {a: b}", "two documents": "a: 1\n---\nb: 2\n",
}  # fmt: skip


def _settings(folder: Path) -> Iterator[Hostile]:
    """Overrides and recipes that are impossible, endless, or not settings."""
    data, place = folder / "data", folder / "recipes"
    place.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkfifo(place / "a pipe.yaml")
    for name, text in RECIPES.items():
        (place / f"{name}.yaml").write_text(text, encoding="utf-8")
    recipes = [*sorted(place.glob("*.yaml")), Path("/dev/zero"), place, Path("none.yaml"), Path("a\0b")]
    plain = ["train", "--source", str(data / "source"), "--target", str(data / "target"), *SETTINGS]
    fast = ["--backbone", "vit_tiny_patch16_224", "--weights", "none", "train.max_steps=1", "data.workers=0"]
    for number, override in enumerate(OVERRIDES):
        out = folder / f"settings-{number}"
        arguments = [*plain, *fast, "train.baseline=false", "--out", str(out), override]
        yield Hostile("settings", override[:40], _session(arguments))
    for recipe in recipes:
        arguments = [*plain, *fast, "--out", str(folder / "recipe-run"), "--recipe", str(recipe)]
        yield Hostile("recipes", recipe.name, _session(arguments), (2,))


FORGERIES: dict[str, bytes] = {
    "empty": b"", "null": b"null", "list": b"[1, 2]", "deep": b"[" * 3000, "digits": b"9" * 5000,
    "bytes": b"\xff\xfe\0",
    "wrong types": b'{"step": "x", "seconds": [], "evaluations": {}, "method": 3, "seed": 1e999, "classes": "abc"}',
}  # fmt: skip


def _forged(folder: Path, whole: Path, steps: int) -> Iterator[Hostile]:
    """Every text of a run folder replaced: each verb that reads it ends in order."""
    data, place = folder / "data", folder / "forged"
    texts = [
        path.relative_to(whole) for path in sorted(whole.rglob("*")) if path.suffix in (".json", ".yaml", ".jsonl")
    ]
    verbs = {
        "train": train_command(data, place, CASE, steps),
        "report": ["report", str(place), "--out", str(folder / "forged.html")],
        "predict": ["predict", str(place), str(data / "target"), "--workers", "0", "--out", str(folder / "forged.csv")],
        "label-these": ["label-these", "--run", str(place), "-n", "4", "--out", str(folder / "forged-labels")],
    }
    readers = {"model": ("predict", "report"), "probe": ("train",), "baseline": ("train", "report")}
    for text in texts:
        for number, (title, content) in enumerate(FORGERIES.items()):
            chosen = readers.get(text.parts[0], ("train", "report", "label-these"))
            verb = chosen[number % len(chosen)]

            def start(text: Path = text, content: bytes = content, verb: str = verb) -> Ended:
                shutil.rmtree(place, ignore_errors=True)
                shutil.rmtree(folder / "forged-labels", ignore_errors=True)
                shutil.copytree(whole, place)
                (place / text).write_bytes(content)
                return run(verbs[verb])

            yield Hostile("forged files of a run", f"{verb}, {text}: {title}", start)


def _models(folder: Path, whole: Path) -> Iterator[Hostile]:
    """Model folders that ask for the absurd, or hold it."""
    place = folder / "forged-model"
    config = json.loads((whole / "model" / "config.json").read_text())
    tensors = safetensors.numpy.load_file(whole / "model" / "model.safetensors")
    first = next(iter(tensors))
    ours: dict[str, dict[str, Any]] = {
        "a hub's name": {"backbone": "hf-hub:org/name"},
        "a path": {"backbone": "../../x"},
        "depth of a million": {"options": {"depth": 1_000_000}},
        "width of a billion": {"options": {"embed_dim": 10**9}},
        "temperature 0": {"temperature": 0},
        "temperature text": {"temperature": "hot"},
        "temperature not finite": {"temperature": float("nan")},
        "no preprocessing": {"preprocessing": None},
        "a head of another kind": {"head": "tree"},
    }
    weights: dict[str, dict[str, Any]] = {
        "not finite": {**tensors, first: np.full_like(tensors[first], np.nan)},
        "a missing tensor": {name: value for name, value in tensors.items() if name != first},
        "a wrong shape": {**tensors, first: np.zeros((3, 3), np.float32)},
        "an extra tensor": {**tensors, "extra": np.zeros(3, np.float32)},
        "no tensors": {},
    }

    def start(config: dict[str, Any], weights: dict[str, Any]) -> Ended:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        (place / "config.json").write_text(json.dumps(config))
        safetensors.numpy.save_file(weights, place / "model.safetensors")
        return run(["predict", str(place), str(folder / "data" / "target"), "--workers", "0"], limit=AT_ONCE)

    unsigned = {**config, "pmtrans": {key: value for key, value in config["pmtrans"].items() if key != "checksum"}}
    for name, change in ours.items():
        changed = {**unsigned, "pmtrans": {**unsigned["pmtrans"], **change}}
        yield Hostile("model folders", name, partial(start, changed, tensors), (1, 2))
    for name, changed_weights in weights.items():
        yield Hostile("model folders", name, partial(start, unsigned, changed_weights), (1, 2))


LISTS: dict[str, bytes] = {
    "empty.txt": b"", "only-breaks.txt": b"\n\n\n", "nul.txt": b"a\0b.png 0\n", "bytes.txt": b"\xff\xfe 0\n" * 3,
    "label.txt": b"a.png 99999999999999999999\n", "negative.txt": b"a.png -1\n", "long-line.txt": b"x" * 3_000_000,
    "missing.txt": b"none.png 0\nnone2.png 1\n", "absolute.txt": b"/etc/passwd 0\n/dev/zero 1\n",
    "above.txt": b"../../../../etc/passwd 0\n", "empty.csv": b"", "header.csv": b"path,label\n",
    "quotes.csv": b'path,label\n"a.png,0\n', "nul.csv": b"path,label\na\0.png,0\n", "wide.csv": b"path," * 100_000,
    "no-columns.csv": b"a,b\n1,2\n", "garbage.parquet": b"PAR1" + b"\xff" * 200 + b"PAR1", "empty.parquet": b"",
    "text.parquet": b"path,label\na.png,0\n",
}  # fmt: skip


def _lists(folder: Path) -> Iterator[Hostile]:
    """Lists and tables of images that are none."""
    place = folder / "lists"
    place.mkdir(exist_ok=True)
    for name, content in LISTS.items():
        (place / name).write_bytes(content)
        target = str(folder / "data" / "target")
        checked = ["check", "--source", str(place / name), "--target", target, "--root", str(place), "--workers", "1"]
        yield Hostile("lists and tables", f"check {name}", _session(checked), (1, 2))
        arguments = train_command(folder / "data", folder / "list-run", CASE, 2, ("--root", str(place)))
        arguments[arguments.index("--source") + 1] = str(place / name)
        yield Hostile("lists and tables", f"train {name}", _session(arguments), (1, 2))
