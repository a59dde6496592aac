"""CONTRIBUTING.md and docs/extending.md, followed to the letter in a copy of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r'^```(\w+) title="([^"]+)"\n(.*?)^```$', re.M | re.S)
COPIED = ("src", "tests", "docs", "recipes", "benchmarks", "pyproject.toml", "Makefile", "CONTRIBUTING.md")
PARTS = ("prediction_entropy", "rowmix", "mixent", "attention_pooled", "margin", "json_lines")
CHECKED = (  # the tests that CONTRIBUTING.md names, and those that the page adds
    "tests/methods/test_every_method.py",
    "tests/methods/test_methods_page.py",
    "tests/methods/test_method_recipes.py",
    "tests/methods/test_mixent.py",
    "tests/training/test_step.py",
    "tests/cli/test_methods_verb.py",
    "tests/mixing",
    "tests/losses/test_prediction_entropy.py",
    "tests/backbones/test_backbone.py",
    "tests/backbones/test_attention_pooled.py",
    "tests/selection/test_validators.py",
    "tests/selection/test_margin.py",
    "tests/report/test_margins.py",
    "tests/data/reading/test_json_lines.py",
    "tests/test_registries.py",
    "tests/docs/all_seven.py",
)


def blocks() -> list[tuple[str, str, str]]:
    """(language, file, text) of every block on the page that names a file."""
    return BLOCK.findall((ROOT / "docs" / "extending.md").read_text(encoding="utf-8"))


def change(text: str, difference: str, name: str) -> str:
    """A block of differences on a file: what it says is there must be there, once."""
    lines = difference.splitlines(keepends=True)
    assert all(line[0] in " +-\n" for line in lines), f"{name}: a difference begins with a space, + or -"
    before = "".join(line[1:] for line in lines if line[0] in " -")
    after = "".join(line[1:] for line in lines if line[0] in " +")
    assert text.count(before) == 1, f"docs/extending.md says that {name} has, once:\n{before}"
    return text.replace(before, after)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with every block of the page in its place."""
    home = tmp_path_factory.mktemp("contributed") / "repository"
    home.mkdir()
    for name in COPIED:
        place = ROOT / name
        if place.is_dir():
            shutil.copytree(place, home / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(place, home / name)
    for language, name, text in blocks():
        path = home / name
        if language == "diff":
            path.write_text(change(path.read_text(encoding="utf-8"), text, name), encoding="utf-8")
        else:
            assert not path.exists(), f"{name} is there already"
            path.write_text(text, encoding="utf-8")
    return home


def run(copy: Path, *command: str) -> str:
    """A command in the copy, with the copy's own package."""
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-6000:]
    return said


def tool(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def test_the_examples_pass_the_checks_of_style_layers_and_types(copy: Path) -> None:
    touched = sorted({name for _, name, _ in blocks() if name.endswith(".py")})
    run(copy, tool("ruff"), "check", "--no-cache", *touched)
    run(copy, tool("ruff"), "format", "--no-cache", "--check", *touched)
    assert "2 kept, 0 broken" in run(copy, tool("lint-imports"), "--no-cache")
    if (ROOT / ".mypy_cache").is_dir():  # what is known of torch and timm, or mypy reads them anew
        shutil.copytree(ROOT / ".mypy_cache", copy / ".mypy_cache")
    run(copy, tool("mypy"), *(name for name in touched if name.startswith("src/")))


def test_the_examples_pass_the_tests_of_every_part_and_train_together(copy: Path) -> None:
    words = " or ".join((*PARTS, "registries", "all_seven", "finite_at_the_edges", "leaves_out", "methods_verb"))
    said = run(copy, sys.executable, "-m", "pytest", "-rA", "-k", words, *CHECKED)
    passed = re.findall(r"^PASSED (\S+)", said, re.M)
    for part in PARTS:
        assert any(part in name for name in passed), part
    for file in CHECKED:
        assert any(name.startswith(file) for name in passed), f"{file} tried nothing"


def test_every_file_and_test_that_contributing_names_is_there(copy: Path) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`((?:src|tests|docs|recipes|benchmarks)/[^`\s]*)`", text))
    assert len(names) > 30
    given = {name for _, name, _ in blocks()}
    for name in names:
        path, _, test = name.partition("::")
        if "NAME" in path:  # a new file: the page has one such
            pattern = re.escape(path).replace("NAME", r"\w+")
            room = path.rpartition("/")[0]
            assert any(re.fullmatch(pattern, one) for one in given) or (ROOT / room).is_dir(), name
        else:
            assert (ROOT / path).exists(), name
        if test:
            assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), name


def test_each_example_changes_only_files_that_its_row_of_contributing_names() -> None:
    """And all of those that the row names without brackets."""
    rows = dict(re.findall(r"^\| \*\*(.+?)\*\* \| (.+?) \|", (ROOT / "CONTRIBUTING.md").read_text(), re.M))
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", page, re.M | re.S))
    assert len(sections) == 7
    for title, text in sections.items():
        row = rows[title[0].lower() + title[1:]]
        optional = set(re.findall(r"`([^`]+)`", " ".join(re.findall(r"\((.*?)\)", row))))
        named = set(re.findall(r"`(\w+/[^`]+)`", row))
        patterns = {name: re.compile(re.escape(name).replace("NAME", r"\w+")) for name in named}
        changed = {name for _, name, _ in BLOCK.findall(text)}
        assert [name for name in changed if not any(p.fullmatch(name) for p in patterns.values())] == [], title
        missing = [n for n, p in patterns.items() if n not in optional and not any(p.fullmatch(c) for c in changed)]
        assert missing == [], title
