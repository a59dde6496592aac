"""Target labels cannot get into training by the order of the images or by their type, whatever they are read from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from hostile_images import encoded, noise
from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.data.packed import open_image
from pmtrans.data.reading.layouts import LAYOUTS, Layout, layout_of
from pmtrans.data.reading.order import label_free_order
from pmtrans.data.reading.read import read_source, read_target
from shards_by_hand import write_tar

CLASSES = ("bike", "lamp", "mug")
# An image is known by its seed. Names repeat between classes, as they do where each folder counts from 1.
NAMES = ("1.png", "2.png", "1.png", "2.png", "1.png", "2.png", "3.png")
TRUE = (0, 0, 1, 1, 2, 2, 2)
SCRAMBLED = (2, 0, 0, 2, 1, 1, 0)  # no two images of one name in one class

Files = Mapping[str, int]  # path below the folder -> seed of the image


def files_of(labels: tuple[int, ...]) -> Files:
    named = zip(labels, NAMES, strict=True)
    return {f"{CLASSES[label]}/{name}": seed for seed, (label, name) in enumerate(named)}


def write_files(folder: Path, files: Files) -> Path:
    for name, seed in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(encoded(noise(seed), "PNG"))
    return folder


def class_folders(home: Path, files: Files) -> Path:
    return write_files(home / "target", files)


def nested_folders(home: Path, files: Files) -> Path:
    write_files(home / "target" / "images", files)
    return home / "target"


def list_of_names(home: Path, files: Files) -> Path:
    write_files(home, files)
    (home / "list.txt").write_text("".join(f"{name} {name.split('/')[0]}\n" for name in files))
    return home / "list.txt"


def list_of_ids(home: Path, files: Files) -> Path:
    write_files(home, files)
    ids = {name: number for number, name in enumerate(CLASSES)}
    (home / "list.lst").write_text("".join(f"{name} {ids[name.split('/')[0]]}\n" for name in sorted(files)))
    return home / "list.lst"


def list_without_labels(home: Path, files: Files) -> Path:
    write_files(home, files)
    (home / "list.list").write_text("".join(f"{name}\n" for name in sorted(files, reverse=True)))
    return home / "list.list"


def comma_table(home: Path, files: Files) -> Path:
    write_files(home, files)
    (home / "table.csv").write_text("path,label\n" + "".join(f"{name},{name.split('/')[0]}\n" for name in files))
    return home / "table.csv"


def tab_table(home: Path, files: Files) -> Path:
    write_files(home, files)
    (home / "table.tsv").write_text("label\tpath\n" + "".join(f"{n.split('/')[0]}\t{n}\n" for n in sorted(files)))
    return home / "table.tsv"


def parquet_table(home: Path, files: Files) -> Path:
    import pyarrow
    from pyarrow import parquet

    write_files(home, files)
    columns = {"path": list(files), "label": [name.split("/")[0] for name in files]}
    parquet.write_table(pyarrow.table(columns), home / "table.parquet")
    return home / "table.parquet"


def tar_shards(home: Path, files: Files) -> Path:
    """Two shards, class by class."""
    rows = sorted(files.items())
    for number, part in enumerate((rows[:4], rows[4:])):
        content = {name: encoded(noise(seed), "PNG") for name, seed in part}
        labels = {name.replace(".png", ".cls"): name.split("/")[0].encode() for name in content}
        write_tar(home / f"shard-{number}.tar", {**content, **labels})
    return home / "shard-{0..1}.tar"


def parquet_of_images(home: Path, files: Files) -> Path:
    import pyarrow
    from pyarrow import parquet

    rows = sorted(files.items())
    columns = {"image": [encoded(noise(seed), "PNG") for _, seed in rows], "label": [n.split("/")[0] for n, _ in rows]}
    parquet.write_table(pyarrow.table(columns), home / "images.parquet")
    return home / "images.parquet"


def huggingface_dataset(home: Path, files: Files) -> Path:
    """Rows sorted by class, as a dataset that was made from class folders has them."""
    import datasets
    import pyarrow

    rows = sorted(files.items())
    images = [{"bytes": encoded(noise(seed), "PNG"), "path": None} for _, seed in rows]
    labels = [CLASSES.index(name.split("/")[0]) for name, _ in rows]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))})
    table = pyarrow.table({"image": images, "label": labels}).cast(features.arrow_schema)
    fingerprint = f"{abs(hash(home)):016x}"[:16]
    dataset = datasets.Dataset(table, datasets.DatasetInfo(features=features), fingerprint=fingerprint)
    dataset.save_to_disk(home / "dataset")
    return home / "dataset"


Writer = Callable[[Path, Files], Path]
WRITERS: tuple[Writer, ...] = (
    *(class_folders, nested_folders, list_of_names, list_of_ids, list_without_labels),
    *(comma_table, tab_table, parquet_table, tar_shards),
)
KINDS = [
    *(pytest.param(writer, id=writer.__name__) for writer in WRITERS),
    pytest.param(parquet_of_images, id="parquet_of_images"),
    pytest.param(huggingface_dataset, id="huggingface_dataset"),
]


def seeds(domain: Domain) -> list[int]:
    """Which image is where, known by its content."""
    by_content = {encoded(noise(seed), "PNG"): seed for seed in range(len(NAMES))}
    found = []
    for path in domain.paths:
        with open_image(path) as file:
            found.append(by_content[file.read()])
    return found


@pytest.mark.parametrize("write", KINDS)
def test_other_labels_give_the_same_order(write: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMTRANS_CACHE", str(tmp_path / "cache"))
    orders = []
    for name, labels in (("true", TRUE), ("scrambled", SCRAMBLED)):
        (tmp_path / name).mkdir()
        target = read_target(write(tmp_path / name, files_of(labels)), CLASSES, classes=CLASSES)
        orders.append(seeds(target.domain))
        found = {} if target.labelled is None else dict(zip(target.labelled.paths, target.labelled.labels, strict=True))
        if write is not list_without_labels:  # where there are labels, they follow their images
            assert [found[path] for path in target.domain.paths] == [labels[seed] for seed in orders[-1]]
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == list(range(len(NAMES)))
    assert [TRUE[seed] for seed in orders[0]] != sorted(TRUE)  # not class by class


def test_the_same_images_in_folders_lists_tables_and_shards_are_in_the_same_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a run on a list of a folder is the run on the folder."""
    monkeypatch.setenv("PMTRANS_CACHE", str(tmp_path / "cache"))
    orders = set()
    for write in WRITERS:
        (tmp_path / write.__name__).mkdir()
        spec = write(tmp_path / write.__name__, files_of(TRUE))
        orders.add(tuple(seeds(read_target(spec, CLASSES, classes=CLASSES).domain)))
    assert len(orders) == 1
    assert [NAMES[seed] for seed in orders.pop()] == sorted(NAMES)


@pytest.mark.parametrize("write", KINDS)
def test_what_training_sees_of_a_target_has_no_labels(
    write: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMTRANS_CACHE", str(tmp_path / "cache"))
    target = read_target(write(tmp_path, files_of(TRUE)), CLASSES, classes=CLASSES)
    assert type(target.domain) is Domain
    if write is not list_without_labels:
        source = read_source(write(tmp_path, files_of(TRUE)), classes=CLASSES)
        assert type(source) is type(target.labelled) is LabelledDomain
        assert type(source.images) is Domain


def test_a_labelled_domain_is_no_domain() -> None:
    """What takes a ``Domain`` cannot be given labels: mypy refuses it, and nothing else could be asked for them."""
    assert not issubclass(LabelledDomain, Domain)
    assert not issubclass(Domain, LabelledDomain)
    assert [field.name for field in dataclasses.fields(Domain)] == ["origin", "paths"]


def test_every_layout_and_every_suffix_is_among_the_kinds_tested_here(tmp_path: Path) -> None:
    found: list[Layout | None] = []
    for write in WRITERS:
        (tmp_path / write.__name__).mkdir()
        found.append(layout_of(write(tmp_path / write.__name__, files_of(TRUE))))
    assert [layout for layout in LAYOUTS if layout not in found] == [one for one in LAYOUTS if one.numbered_names]
    suffixes = {suffix for layout in LAYOUTS for suffix in layout.suffixes}
    assert suffixes == {".txt", ".lst", ".list", ".csv", ".tsv", ".tab", ".parquet", ".pq", ".tar"}


def test_rows_that_are_numbered_class_by_class_are_put_in_an_order_of_their_content(tmp_path: Path) -> None:
    """As a dataset is extracted: in two orders of its rows the images come out in one order."""
    orders = []
    for name, rows in (("one", range(7)), ("other", (3, 6, 0, 5, 1, 4, 2))):
        files = {f"{number:08d}.png": seed for number, seed in enumerate(rows)}
        paths = sorted(str(write_files(tmp_path / name, files) / file) for file in files)
        ordered = tuple(paths[place] for place in label_free_order(paths, by_content=True))
        orders.append(seeds(Domain(tmp_path, ordered)))
    assert orders[0] == orders[1] != sorted(orders[0])
