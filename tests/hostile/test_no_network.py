"""What somebody else wrote, a list or a received run, does not decide what this machine connects to."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from pyarrow import parquet

from pmtrans.addresses import refuse_unasked
from pmtrans.config import Config
from pmtrans.data.reading.read import read_source, read_target
from pmtrans.errors import DataError, RunError
from pmtrans.files import write_text
from pmtrans.inference.export.images import images_for_parity
from pmtrans.inference.inputs import gather
from pmtrans.progress import Reporter
from pmtrans.report.material import read_material
from pmtrans.run.folder import RunFolder
from pmtrans.watching import reference

REMOTE = ["ftp://127.0.0.1:9/x.tar/@512+100/a.png", "memory://x/x.tar/@512+100/b.png", "http://127.0.0.1/c.png"]
CHAINED = "simplecache::ftp://127.0.0.1/x.tar/@512+100/d.png"


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that are opened; none can be."""
    addresses: list[str] = []

    def fail(address: str, **_: Any) -> None:
        addresses.append(address)
        raise OSError("no network")

    monkeypatch.setattr(fsspec.core, "url_to_fs", fail)
    return addresses


def listed(folder: Path, kind: str) -> Path:
    path = folder / f"x.{kind}"
    paths = [*REMOTE, CHAINED]
    labels = ["a", "b", "a", "b"]
    if kind == "parquet":
        parquet.write_table(pa.table({"path": paths, "label": labels}), path)
    elif kind == "csv":
        path.write_text("path,label\n" + "".join(f"{one},{label}\n" for one, label in zip(paths, labels, strict=True)))
    else:
        path.write_text("".join(f"{one} {label}\n" for one, label in zip(paths, labels, strict=True)))
    return path


@pytest.mark.parametrize("kind", ["txt", "csv", "parquet"])
def test_a_list_names_images_of_this_machine(tmp_path: Path, kind: str, reached: list[str]) -> None:
    path = listed(tmp_path, kind)
    readers: list[Callable[[Path], object]] = [
        read_source,
        lambda place: read_target(place, ["a", "b"]),
        lambda place: gather([str(place)], io.BytesIO()),
    ]
    for read in readers:
        with pytest.raises(DataError, match=r"line 1|line 2") as caught:
            read(path)
        assert str(caught.value).count("is at another address") == 4
    assert reached == []


def test_images_below_a_given_root_are_read(tmp_path: Path, reached: list[str]) -> None:
    path = tmp_path / "x.txt"
    path.write_text("".join(f"memory://x/x.tar/@512+100/{name}.png {name}\n" for name in "ab"))
    assert len(read_source(path, root="memory://x")) == 2
    with pytest.raises(DataError, match="is at another address: give that as root"):
        read_source(path, root="memory://y")
    assert reached == []


def received(folder: Path, **data: Any) -> Path:
    """A run folder that says where its images are."""
    folder.mkdir()
    write_text(folder / "config.yaml", Config.model_validate({"data": data}).to_yaml())
    return folder


PLACES: dict[str, dict[str, Any]] = {
    "target": {"source": "here", "target": "ftp://127.0.0.1/x.tar"},
    "source": {"source": "memory://x/{0..9}.tar", "target": "here"},
    "sources": {"source": ["here", "s3://bucket/a.tar"], "target": "here"},
    "labels": {"source": "here", "target": "here", "target_labels": "s3://bucket/a.tar"},
    "root": {"source": "here", "target": "here", "target_root": "ftp://127.0.0.1"},
    "slash": {"source": "here", "target": "ftp:/127.0.0.1/x.tar"},
}


@pytest.mark.parametrize("which", PLACES)
def test_addresses_that_a_received_run_records_are_not_reached(tmp_path: Path, which: str, reached: list[str]) -> None:
    run = received(tmp_path / "run", **PLACES[which])
    material = read_material(run)
    assert material.data is None
    assert "an address that the run records; to reach it, allow it: --allow-address " in material.warnings[-1]
    assert images_for_parity(run, None)[1] == "generated patterns"
    assert reached == []


def test_watch_asks_first_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reached: list[str]) -> None:
    run = received(tmp_path / "run", **PLACES["target"])
    monkeypatch.setattr(reference, "_from_evidence", lambda _: None)
    watched: Any = type("Watched", (), {"folder": RunFolder(run)})
    with pytest.raises(RunError, match=r"is needed once.*--allow-address ftp://127\.0\.0\.1"):
        reference.reference_of(watched, tmp_path / "stored", Reporter(quiet=True))
    assert reached == []


@pytest.mark.parametrize(
    ("address", "allowed", "is_allowed"),
    [
        ("s3://bucket/a.tar", "s3://bucket", True),
        ("s3://bucket/a.tar", "s3://bucket/", True),
        ("s3://bucket/a.tar", "s3://bucket/a.tar", True),
        ("s3://bucket.other/a.tar", "s3://bucket", False),
        ("s3://bucket/a.tar::ftp://other", "s3://bucket", False),
        ("s3://bucket/a.tar", "", False),
        ("s3://bucket/a.tar", "s3:", False),
        ("/here/a.tar", "s3://bucket", True),
        ("file:///here/a.tar", "s3://bucket", True),
    ],
)
def test_what_is_allowed(address: str, allowed: str, is_allowed: bool) -> None:
    if is_allowed:
        refuse_unasked([address], [allowed])
    else:
        with pytest.raises(DataError):
            refuse_unasked([address], [allowed])


def test_an_allowed_address_is_reached(tmp_path: Path, reached: list[str]) -> None:
    run = received(tmp_path / "run", source="memory://x/a.tar", target="memory://x/b.tar")
    assert "cannot be reached: no network" in read_material(run, ["memory://x"]).warnings[-1]
    assert reached == ["memory://x/a.tar"]
