"""The Dockerfile, as far as it can be checked without an engine: its commands are run here, on what it copies."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer.core
import typer.main

from pmtrans.cli import app

ROOT = Path(__file__).parents[1]
PMTRANS = [sys.executable, "-c", "from pmtrans.cli import main; main()"]


def instructions() -> list[tuple[str, str]]:
    """``(name, arguments)`` of each line, continued lines joined and comments dropped."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def last(name: str) -> str:
    return [rest for found, rest in instructions() if found == name][-1]


def copied() -> list[str]:
    return [path for name, rest in instructions() if name == "COPY" for path in shlex.split(rest)[:-1]]


def default_command() -> list[str]:
    command: list[str] = json.loads(last("CMD"))
    return command


def health_check() -> list[str]:
    command: list[str] = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    return command


def test_the_default_command_is_one_of_the_real_command_line() -> None:
    program, verb, *arguments = default_command()
    assert program == "pmtrans"
    commands = typer.main.get_command(app)
    assert isinstance(commands, typer.core.TyperGroup)
    context = commands.commands[verb].make_context(verb, list(arguments))  # refuses an option that is not there
    assert context.params["run"] == Path("/run")
    assert context.params["host"] == "0.0.0.0"
    assert str(context.params["port"]) == last("EXPOSE")


def test_serving_listens_on_loopback_unless_it_is_told_otherwise() -> None:
    commands = typer.main.get_command(app)
    assert isinstance(commands, typer.core.TyperGroup)
    assert commands.commands["serve"].make_context("serve", ["run"]).params["host"] == "127.0.0.1"


def test_the_extras_exist() -> None:
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", " ".join(rest for name, rest in instructions() if name == "RUN"))
    declared = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
    assert set(extras.split(",")) == {"serve", "onnx"}
    for extra in extras.split(","):
        assert re.search(rf"^{extra} = \[", declared, re.M), extra


def test_what_is_copied_is_there_and_not_ignored() -> None:
    kept = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] not in "#*"]
    assert sorted(copied()) == sorted(line.removeprefix("!") for line in kept)
    assert [path for path in copied() if not (ROOT / path).exists()] == []


def test_what_is_copied_is_enough_to_build_the_package(tmp_path: Path) -> None:
    for name in copied():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", "."]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"pmtrans/serving/page.html", "pmtrans/recipes/office-31/deit.yaml"} <= set(names)


def test_the_torch_of_the_base_is_the_only_thing_that_leaves_the_lock() -> None:
    (expression,) = re.findall(r"sed -i -E '([^']+)'", " ".join(rest for name, rest in instructions() if name == "RUN"))
    lock = ROOT / "requirements.lock"
    kept = subprocess.run(["sed", "-E", expression, lock], capture_output=True, text=True, check=True).stdout
    left = set(lock.read_text().splitlines()) - set(kept.splitlines())
    assert {line.partition("==")[0] for line in left} == {"torch", "torchvision"}


def test_nothing_runs_as_root() -> None:
    names = [name for name, _ in instructions()]
    assert int(last("USER")) > 0
    assert f"--uid {last('USER')} " in " ".join(rest for name, rest in instructions() if name == "RUN")
    assert "RUN" not in names[names.index("USER") :]


@pytest.fixture
def service(saved_model: Callable[..., Path]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The default command as a process, on a model instead of ``/run`` and on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [str(saved_model()) if word == "/run" else word for word in default_command()[1:]]
    process = subprocess.Popen(
        [*PMTRANS, *arguments, "--port", str(port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "Serving" in process.stdout.readline()
    yield process, port
    if process.poll() is None:
        process.kill()
        process.wait()


def test_the_health_check_sees_the_service_and_its_end(service: tuple[subprocess.Popen[str], int]) -> None:
    process, port = service
    program, *arguments = health_check()
    assert program == "python"
    assert sum(word.count(last("EXPOSE")) for word in arguments) == 1
    check = [sys.executable, *(word.replace(last("EXPOSE"), str(port)) for word in arguments)]
    assert subprocess.run(check, capture_output=True).returncode == 0
    elsewhere = [word.replace("/health", "/no-such-page") for word in check]
    assert subprocess.run(elsewhere, capture_output=True).returncode == 1
    process.send_signal(signal.SIGTERM)  # what an engine sends first
    _, warned = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "anyone who can reach" in warned
    assert subprocess.run(check, capture_output=True).returncode == 1
