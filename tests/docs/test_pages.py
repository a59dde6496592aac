"""Every command and snippet on the pages is run, in order, on tiny data under the names that the page uses."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml

from pmtrans.bench.complexity import SWEEPS
from pmtrans.cli import main
from pmtrans.config import packaged_recipes
from tiny_data import write_domain
from tiny_office_home import write_office_home

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    "README.md",
    "docs/guide.md",
    "docs/data.md",
    "docs/backbones.md",
    "docs/negative-transfer.md",
    "docs/processes.md",
    "docs/moving.md",
    "docs/bench.md",
    "docs/extending.md",
]
FENCE = re.compile(r"```(console|python)\n(.*?)```", re.S)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``photos/shop``, ``photos/phone``, its labelled copy, a list, a table, ``quick.yaml`` and ``study.yaml``."""
    classes = ["ant", "bee", "cat"]
    write_domain(tmp_path / "photos" / "shop", classes, 8, tint=0)
    labelled = write_domain(tmp_path / "photos" / "phone-labelled", classes, 4, tint=60, seed=1)
    (tmp_path / "photos" / "phone").mkdir()
    for number, image in enumerate(sorted(labelled.rglob("*.png"))):
        shutil.copy(image, tmp_path / "photos" / "phone" / f"{number}.png")
    shop = sorted((tmp_path / "photos" / "shop").rglob("*.png"))
    (tmp_path / "lists").mkdir()
    lines = [f"{path.relative_to(tmp_path / 'photos')} {classes.index(path.parent.name)}\n" for path in shop]
    (tmp_path / "lists" / "shop.txt").write_text("".join(lines))
    rows = [f"{path.relative_to(tmp_path)},{path.parent.name}\n" for path in shop]
    (tmp_path / "shop.csv").write_text("path,label\n" + "".join(rows))
    (tmp_path / "quick.yaml").write_text(shown("docs/guide.md", "quick.yaml"))
    (tmp_path / "study.yaml").write_text(small_study())
    write_office_home(tmp_path / "datasets" / "office-home", per_class=4)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_snippet_on_the_page_works(
    page: str, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "negative-transfer" in page:
        run(
            "pmtrans train --source photos/shop --target photos/phone --out runs/phone --recipe quick.yaml", monkeypatch
        )
    blocks = FENCE.findall((ROOT / page).read_text())
    assert blocks, "a page without a command proves nothing"
    for kind, text in blocks:
        if kind == "python":
            monkeypatch.setattr("pmtrans.api.load_config", _with_quick_recipe())
            exec(compile(text, page, "exec"), {"__name__": "page"})
            continue
        for line in text.splitlines():
            command = line.split("#")[0].strip().removeprefix(".venv/bin/")
            if command.startswith("pmtrans serve"):
                serve(command)
            elif command.startswith("pmtrans"):
                run(command, monkeypatch)
            else:
                assert command.startswith("make "), command
                assert f"\n{command.split()[1]}:" in (ROOT / "Makefile").read_text()


def shown(page: str, file: str) -> str:
    """A file as the page shows it, with its name in the first line."""
    (text,) = re.findall(rf"```yaml\n(# {re.escape(file)}.*?)```", (ROOT / page).read_text(), re.S)
    return str(text)


def small_study() -> str:
    """The study that docs/bench.md shows, with the tiny network and one seed."""
    text = shown("docs/bench.md", "study.yaml")
    return yaml.safe_dump({**yaml.safe_load(text), "recipe": "quick.yaml", "seeds": [0]}, sort_keys=False)


def _with_quick_recipe() -> object:
    """The README's snippet takes the default backbone, whose weights are downloaded: here it is the tiny one."""
    from pmtrans.settings import load_config

    return lambda recipe, overrides, flags: load_config(Path("quick.yaml"), overrides, flags)


def run(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = shlex.split(command)
    if arguments[1] == "bench":
        make_small(arguments, monkeypatch)
    if arguments[1] == "train" and "--recipe" not in arguments:
        arguments += ["--recipe", "quick.yaml"]
    monkeypatch.setattr(sys, "argv", arguments)
    code: object = 0
    try:
        main()
    except SystemExit as stopped:
        code = stopped.code
    assert not code, command


def make_small(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite on the tiny network and one task; Ray takes half a minute to start, and only where that is asked for."""
    if "--recipe" in arguments:
        place = arguments.index("--recipe") + 1
        assert arguments[place] in packaged_recipes()
        arguments[place] = "quick.yaml"
        arguments += [] if "--tasks" in arguments else ["--tasks", "A2C"]
    if "ray" in arguments and not os.environ.get("PMTRANS_SOAK"):
        arguments[arguments.index("ray")] = "local"
    if "complexity" in arguments:
        for variable in SWEEPS:
            monkeypatch.setitem(SWEEPS, variable, (4, 8))


def serve(command: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = shlex.split(re.sub(r"--port \d+", f"--port {port}", command))[1:]
    code = "from pmtrans.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen([sys.executable, "-c", code, *arguments], env=environment)
    try:
        for _ in range(600):
            assert server.poll() is None, "the server stopped by itself"
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                    assert answer.status == 200
                    break
            except OSError:
                time.sleep(0.2)
        else:
            raise AssertionError("the server did not answer")
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=60)
    assert server.returncode in (0, 143)
