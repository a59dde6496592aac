"""What is built can be installed: nothing that the code reads at run time is left behind."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def test_the_wheel_holds_all_of_the_package_and_the_recipes(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    here = ROOT / "src"
    wanted = {
        path.relative_to(here).as_posix()
        for path in (here / "pmtrans").rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".so")
    }
    assert {"pmtrans/py.typed", "pmtrans/backbones/digits_vit.safetensors"} <= wanted
    assert wanted - names == set()
    recipes = {f"pmtrans/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "recipes").rglob("*.yaml")}
    assert "pmtrans/recipes/office-31/deit.yaml" in recipes
    assert recipes - names == set()
    assert not any(name.startswith("tests/") for name in names)


def test_the_wheel_knows_its_extras_and_bounds_from_below_only(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(next(name for name in archive.namelist() if name.endswith("METADATA"))).decode()
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    for extra in ("onnx", "serve", "parquet"):
        assert any(f"extra == '{extra}'" in line for line in required)
    assert not any(sign in line.split(";")[0] for line in required for sign in ("<", "==", "~="))


def test_the_source_archive_holds_tests_and_recipes(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = archive.getnames()
    for part in ("src/pmtrans/serving/page.html", "tests/test_package.py", "recipes/office-31/deit.yaml"):
        assert any(name.endswith(part) for name in names)
