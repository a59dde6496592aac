"""The data of ``benchmarks/situations.py``: which images and labels of a domain a situation has, as tables.

A domain is a list of (path, label). What is drawn depends on the seed and on each image's own name, so one label per
class is among three per class, and the same command makes the same tables.
"""

from __future__ import annotations

import csv
import io
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from pmtrans.data.demo.digits import DIGITS, PER_CLASS, write_digits
from pmtrans.data.demo.glyphs import FONTS
from pmtrans.data.reading.folders import read_folder
from pmtrans.data.sampling import random_seed
from pmtrans.files import write_text

Images = list[tuple[str, str]]  # (path, label)
SANS = ("DejaVuSans", "cmss")  # fonts of the demo without serifs
TAIL = 0.1  # of the largest class in the smallest of a long tail


def list_domain(folder: Path) -> Images:
    """The images of class folders, by absolute path."""
    rows = read_folder(Path(os.path.abspath(folder))).rows
    if not all(row.label for row in rows):
        raise SystemExit(f"{folder}: not all images are in class folders.")
    return [(row.path, row.label or "") for row in rows]


def write_table(file: Path, images: Images) -> Path:
    """``path,label``; one that is there already with the same rows is left alone."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([("path", "label"), *images])
    if not (file.is_file() and file.read_text(encoding="utf-8") == text.getvalue()):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, text.getvalue())
    return file


def class_names(images: Images) -> list[str]:
    return sorted({label for _, label in images})


def of_classes(images: Images, wanted: Sequence[str]) -> Images:
    """The images of these classes."""
    return [(path, label) for path, label in images if label in wanted]


def draw_labels(images: Images, per_class: int, seed: int) -> Images:
    """So many images of each class, to be given with their labels; of a smaller class all."""
    return _drawn(images, dict.fromkeys(class_names(images), per_class), seed)


def without(images: Images, given: Images) -> Images:
    """What can measure: the images that were not given with their labels."""
    paths = {path for path, _ in given}
    return [(path, label) for path, label in images if path not in paths]


def long_tail(images: Images, seed: int) -> Images:
    """Class sizes n, n q, n q^2, ... down to n / 10, the largest class first; n as large as the classes allow."""
    sizes: defaultdict[str, int] = defaultdict(int)
    for _, label in images:
        sizes[label] += 1
    ranked = sorted(sizes, key=lambda name: (-sizes[name], name))
    falling = [TAIL ** (rank / max(1, len(ranked) - 1)) for rank in range(len(ranked))]
    largest = min(sizes[name] / share for name, share in zip(ranked, falling, strict=True))
    kept = {name: max(1, round(largest * share)) for name, share in zip(ranked, falling, strict=True)}
    return _drawn(images, kept, seed)


def _drawn(images: Images, counts: dict[str, int], seed: int) -> Images:
    """``counts`` images of each class, in the order of ``images``."""
    members: defaultdict[str, list[str]] = defaultdict(list)
    for path, label in images:
        members[label].append(path)
    drawn: set[str] = set()
    for label, paths in members.items():
        lots = {path: random_seed(seed, "situation", label, os.path.basename(path)) for path in paths}
        drawn.update(sorted(paths, key=lambda path: (lots[path], path))[: counts[label]])
    return [(path, label) for path, label in images if path in drawn]


def class_shares(images: Images, classes: Sequence[str]) -> list[float]:
    """The share of each class among the images."""
    labels = [label for _, label in images]
    return [labels.count(name) / len(labels) for name in classes]


def demo_domains(out: Path) -> dict[str, Path]:
    """Printed (P) and handwritten (H) digits, and the printed ones by kind of font: sans serif (S) and Roman (R)."""
    printed, handwritten = write_digits(out / "digits", seed=0)
    sans, roman = by_font(list_domain(printed))
    tables = {"S": write_table(out / "sans.csv", sans), "R": write_table(out / "roman.csv", roman)}
    return {"P": printed, "H": handwritten, **tables}


def by_font(printed: Images) -> tuple[Images, Images]:
    """(sans serif, Roman); the fonts take turns among the images of a digit, which are numbered through all digits."""
    sans, roman = Images(), Images()
    for path, label in printed:
        font = FONTS[(int(Path(path).stem) - DIGITS.index(label) * PER_CLASS) % len(FONTS)]
        (sans if font.startswith(SANS) else roman).append((path, label))
    return sans, roman


def folder_domains(data: Path) -> dict[str, Path]:
    """The folders in ``data`` by their first letter: amazon is A."""
    found: dict[str, Path] = {}
    for folder in sorted(entry for entry in data.iterdir() if entry.is_dir() and not entry.name.startswith(".")):
        letter = folder.name[0].upper()
        if letter in found:
            raise SystemExit(f"{folder} and {found[letter]} begin with the same letter: rename one of them.")
        found[letter] = Path(os.path.abspath(folder))
    return found


def read_images(place: Path) -> Images:
    """The images of a domain: class folders, or a table written here."""
    if place.is_dir():
        return list_domain(place)
    rows = csv.reader(io.StringIO(place.read_text(encoding="utf-8"), newline=""))
    return [(path, label) for path, label in list(rows)[1:]]
