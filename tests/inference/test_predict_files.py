"""Many images to one file: order, formats, interruption."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pyarrow import parquet

from pmtrans.cli.early import require_inputs
from pmtrans.errors import DataError, RunError
from pmtrans.inference.inputs import PathList, gather
from pmtrans.inference.output import writer_for
from pmtrans.inference.predict_files import PredictOptions, predict_to_file, predict_to_stream
from pmtrans.inference.predictor import Predictor, load
from pmtrans.signals import Interrupted, StopRequest
from shards_by_hand import write_tar

NOTHING = io.BytesIO()


def ignore(images: int) -> None:
    pass


@pytest.fixture
def model(saved_model: Callable[..., Path]) -> Path:
    return saved_model()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Eleven images and a file that is none, in two folders."""
    random = np.random.default_rng(0)
    for number in range(11):
        place = tmp_path / "photos" / ("a" if number % 2 else "b")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (40, 44, 3), dtype=np.uint8)).save(place / f"{number:02d}.png")
    (tmp_path / "photos" / "a" / "broken.jpg").write_bytes(b"\xff\xd8\xff nothing")
    return tmp_path / "photos"


def run(
    predictor: Predictor, model: Path, photos: Path, out: Path, stop: StopRequest | None = None, **changes: Any
) -> Any:
    paths = gather([str(photos)], NOTHING)
    settings = PredictOptions(**{"batch_size": 4, **changes})
    return predict_to_file(predictor, model, paths, out, settings, 0, ignore, stop or StopRequest())


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        return list(csv.DictReader(file))


class StopAfter(StopRequest):
    """A signal that arrives during the given batch."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.batches = batches

    def check(self) -> None:
        self.batches -= 1
        if self.batches == 0:
            raise Interrupted(15)


def test_a_row_per_image_in_order_with_the_columns_of_the_contract(model: Path, photos: Path, tmp_path: Path) -> None:
    tally = run(load(model), model, photos, tmp_path / "rows.csv")
    rows = read_csv(tmp_path / "rows.csv")
    assert list(rows[0]) == ["path", "class", "probability", "entropy", "abstain", "error"]
    assert [row["path"] for row in rows] == sorted(str(path) for path in photos.rglob("*.*"))
    expected = {row.path: row for row in load(model).predict([row["path"] for row in rows])}
    for row in rows:
        said = expected[row["path"]]
        assert row["class"] == (said.label or "")
        assert row["abstain"] == ("true" if said.error else "false")
        assert bool(row["error"]) == row["path"].endswith("broken.jpg")
        if said.probability is not None:
            assert float(row["probability"]) == pytest.approx(said.probability, abs=2e-6)
            assert float(row["entropy"]) == pytest.approx(said.entropy, abs=2e-6)
    assert (tally.images, tally.unreadable) == (12, 1)
    assert not (tmp_path / ".rows.csv.partial").exists()


def test_csv_json_lines_and_parquet_say_the_same(model: Path, photos: Path, tmp_path: Path) -> None:
    predictor = load(model)
    for name in ("rows.csv", "rows.jsonl", "rows.parquet"):
        run(predictor, model, photos, tmp_path / name, top=2, abstain_below=0.6)
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert parquet.read_table(tmp_path / "rows.parquet").to_pylist() == lines
    assert {type(line["abstain"]) for line in lines} == {bool}
    for row, line in zip(read_csv(tmp_path / "rows.csv"), lines, strict=True):
        assert row == {key: _as_csv(value) for key, value in line.items()}
        assert list(row)[6:] == ["class_2", "probability_2"]


def _as_csv(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("torn", [b"", b'{"path": "half a li', b'{"path": "x"}\n'])
def test_an_interrupted_call_repeated_gives_the_file_of_one_go(
    model: Path, photos: Path, tmp_path: Path, batches: int, torn: bytes
) -> None:
    predictor = load(model)
    run(predictor, model, photos, tmp_path / "whole.csv")
    out = tmp_path / "cut.csv"
    with pytest.raises(Interrupted):
        run(predictor, model, photos, out, StopAfter(batches))
    assert not out.exists()
    with (tmp_path / ".cut.csv.partial" / "rows.jsonl").open("ab") as journal:
        journal.write(torn)
    tally = run(predictor, model, photos, out)
    assert tally.resumed_at == 4 * batches
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_partial_rows_of_other_settings_images_or_weights_are_not_taken_over(
    model: Path, photos: Path, tmp_path: Path, saved_model: Callable[..., Path]
) -> None:
    predictor, out = load(model), tmp_path / "rows.csv"
    other = saved_model("swin", name="other")

    def interrupt() -> None:
        with pytest.raises(Interrupted):
            run(predictor, model, photos, out, StopAfter(1))

    interrupt()
    assert run(predictor, model, photos, out, top=2).resumed_at == 0
    interrupt()
    assert run(load(other), other, photos, out).resumed_at == 0
    interrupt()
    (photos / "a" / "broken.jpg").rename(photos / "a" / "renamed.jpg")
    assert run(predictor, model, photos, out).resumed_at == 0


def test_workers_do_not_change_the_file(model: Path, photos: Path, tmp_path: Path) -> None:
    predictor, paths = load(model), gather([str(photos)], NOTHING)
    written = []
    for workers in (0, 2):
        out = tmp_path / f"{workers}.csv"
        predict_to_file(predictor, model, paths, out, PredictOptions(batch_size=3), workers, ignore, StopRequest())
        written.append(out.read_bytes())
    assert written[0] == written[1]


def test_a_stream_gets_the_same_csv(model: Path, photos: Path, tmp_path: Path) -> None:
    run(load(model), model, photos, tmp_path / "rows.csv")
    stream = io.StringIO(newline="")
    paths = gather([str(photos)], NOTHING)
    predict_to_stream(load(model), paths, stream, PredictOptions(batch_size=4), 0, ignore, StopRequest())
    assert stream.getvalue().encode() == (tmp_path / "rows.csv").read_bytes()


def test_folders_files_lists_tables_and_stdin_are_read_in_the_order_given(photos: Path, tmp_path: Path) -> None:
    first, second = photos / "b" / "00.png", photos / "a" / "01.png"
    (tmp_path / "list.txt").write_text("photos/b/04.png 3\nphotos/b/02.png 1\nphotos/b/gone.png\n")
    (tmp_path / "table.csv").write_text("path,label\nphotos/a/05.png,1\n")
    stdin = io.BytesIO(f"{second}\r\n\n{first}\n".encode())
    given = [str(first), str(tmp_path / "list.txt"), "-", str(tmp_path / "table.csv"), "gone.jpg"]
    found = [Path(path).name for path in gather(given, stdin)]
    assert found == ["00.png", "04.png", "02.png", "gone.png", "01.png", "00.png", "05.png", "gone.jpg"]


def test_what_is_left_out_of_a_folder_or_shard_is_said(photos: Path, tmp_path: Path) -> None:
    (photos / "a" / ".hidden.png").write_bytes(b"")
    shard = write_tar(tmp_path / "x.tar", {"1.png": b"", "2": b""})
    said: list[str] = []
    gather([str(photos), str(shard)], NOTHING, warn=said.append)
    assert said == [
        f"{photos}: left out: 1 hidden images, such as .hidden.png: rename them to use them",
        f"{shard}: left out: 1 files without the extension of an image, such as 2: rename those that are images",
    ]


def test_a_file_address_is_the_path_in_it(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("photos/b/04.png\n")
    given = [photos / "b" / "00.png", photos / "a", tmp_path / "list.txt", tmp_path / "gone.jpg"]
    addresses = [path.as_uri() for path in given]
    require_inputs(addresses)
    found, expected = (list(gather(names, io.BytesIO())) for names in (addresses, [str(path) for path in given]))
    assert found == expected
    require_inputs([(photos / "a").as_uri()])
    with pytest.raises(DataError, match="there is no such folder"):
        require_inputs([(photos / "nowhere").as_uri()])


def test_names_with_line_breaks_and_without_utf8_come_through(model: Path, tmp_path: Path) -> None:
    names = [os.fsdecode(b"line\nbreak.png"), os.fsdecode(b"latin-\xe9.png"), 'quote",.png']
    (tmp_path / "odd").mkdir()
    for name in names:
        Image.new("RGB", (8, 8)).save(tmp_path / "odd" / "x.png")
        os.rename(tmp_path / "odd" / "x.png", os.path.join(tmp_path / "odd", name))
    stdin = io.BytesIO(b"\0".join(os.fsencode(tmp_path / "odd" / name) for name in names) + b"\0")
    paths = gather(["-"], stdin)
    assert [os.path.basename(path) for path in paths] == names
    for ending in (".csv", ".jsonl", ".parquet"):
        out = tmp_path / f"rows{ending}"
        tally = predict_to_file(load(model), model, paths, out, PredictOptions(), 0, ignore, StopRequest())
        assert tally.unreadable == 0
    assert [os.path.basename(row["path"]) for row in read_csv(tmp_path / "rows.csv")] == names
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [os.path.basename(line["path"]) for line in lines] == names


def test_a_path_list_is_a_sequence(tmp_path: Path) -> None:
    names = ["a", "", "bb", os.fsdecode(b"\xff"), "c"]
    paths = PathList(names)
    assert list(paths) == names
    assert (paths[-1], list(paths[1:3]), len(paths)) == ("c", names[1:3], 5)
    with pytest.raises(IndexError):
        paths[5]


@pytest.mark.parametrize(
    ("given", "said"),
    [(["nowhere"], "no such folder or file"), (["-"], "no image there"), (["{empty}"], "no image in this folder")],
)
def test_nothing_to_predict_is_one_line(given: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        gather([name.format(empty=tmp_path) for name in given], io.BytesIO())


def test_an_unknown_ending_and_a_folder_are_refused_before_anything_is_computed(
    model: Path, photos: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"\.csv, \.jsonl"):
        writer_for(Path("rows.xlsx"))
    (tmp_path / "rows.csv").mkdir()
    with pytest.raises(RunError, match="is a folder"):
        run(load(model), model, photos, tmp_path / "rows.csv")


def test_two_calls_on_one_output_exclude_each_other(model: Path, photos: Path, tmp_path: Path) -> None:
    predictor, out = load(model), tmp_path / "rows.csv"

    class Second(StopRequest):
        def check(self) -> None:
            with pytest.raises(RunError, match="in use"):
                run(predictor, model, photos, out)

    run(predictor, model, photos, out, Second())
    assert len(read_csv(out)) == 12
