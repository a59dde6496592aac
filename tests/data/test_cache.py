from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pmtrans.config import Config
from pmtrans.data.cache import ImageCache, open_cache, read_image
from pmtrans.data.loader import image_batches
from pmtrans.data.transforms import Preprocessing, evaluation_transform, training_transform
from pmtrans.errors import ConfigError, DataError
from pmtrans.training.train import train
from tiny_run import Witness, assert_same_run

Configure = Callable[..., Config]
SIZE = Preprocessing(24, 28, "bicubic", (0.5, 0.5, 0.5), (0.2, 0.2, 0.2))


def no_warning(text: str) -> None:
    raise AssertionError(text)


def photograph(path: Path, seed: int = 0) -> str:
    pixels = np.random.default_rng(seed).integers(0, 256, (90, 70, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return str(path)


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def opened(folder: Path, warn: Callable[[str], None] = no_warning) -> ImageCache:
    cache = open_cache(str(folder), warn)
    assert cache is not None
    return cache


@pytest.mark.parametrize("suffix", ["png", "jpg"])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_cold_warm_and_none_give_the_same_bits(tmp_path: Path, suffix: str, interpolation: str) -> None:
    size = Preprocessing(24, 28, interpolation, SIZE.mean, SIZE.std)
    path, cache = photograph(tmp_path / f"a.{suffix}"), opened(tmp_path / "cache")
    transforms = [evaluation_transform(size), training_transform(size), training_transform(size, "randaugment")]
    for transform in transforms:
        seen = []
        for given in (None, cache, cache):
            torch.manual_seed(3)
            seen.append(transform(read_image(path, size, given)))
        assert torch.equal(seen[0], seen[1])
        assert torch.equal(seen[0], seen[2])
    assert len(entries(tmp_path / "cache")) == 1


def test_a_hit_is_taken_from_the_entry_alone(tmp_path: Path) -> None:
    path, cache = photograph(tmp_path / "a.png"), opened(tmp_path / "cache")
    cache.load(path, SIZE)
    entry = entries(tmp_path / "cache")[0]
    header = entry.read_bytes()[: -3 * 28 * 28]
    black = bytes(3 * 28 * 28)
    entry.write_bytes(header[:-4] + zlib.crc32(black).to_bytes(4, "little") + black)
    assert cache.load(path, SIZE).tobytes() == black


def test_a_changed_file_is_a_miss_even_with_the_old_size_and_time(tmp_path: Path) -> None:
    path, cache = tmp_path / "a.bmp", opened(tmp_path / "cache")  # of a fixed size whatever the picture
    photograph(path)
    before = os.stat(path)
    old = cache.load(str(path), SIZE)
    photograph(path, seed=1)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert os.stat(path).st_size == before.st_size
    new = cache.load(str(path), SIZE)
    assert new.tobytes() != old.tobytes()
    assert new.tobytes() == opened(tmp_path / "other").load(str(path), SIZE).tobytes()
    assert cache.load(str(path), SIZE).tobytes() == new.tobytes()
    assert len(entries(tmp_path / "cache")) == 1  # the old entry was replaced


def test_another_size_or_interpolation_is_another_entry(tmp_path: Path) -> None:
    path, cache = photograph(tmp_path / "a.png"), opened(tmp_path / "cache")
    assert cache.load(path, SIZE).size == (28, 28)
    assert cache.load(path, Preprocessing(24, 32, "bicubic", SIZE.mean, SIZE.std)).size == (32, 32)
    cache.load(path, Preprocessing(24, 28, "bilinear", SIZE.mean, SIZE.std))
    assert len(entries(tmp_path / "cache")) == 3


@pytest.mark.parametrize("damage", ["cut", "empty", "bit", "swapped"])
def test_a_damaged_entry_is_a_miss_and_is_mended(tmp_path: Path, damage: str) -> None:
    path, cache = photograph(tmp_path / "a.png"), opened(tmp_path / "cache")
    right = cache.load(path, SIZE).tobytes()
    entry = entries(tmp_path / "cache")[0]
    content = bytearray(entry.read_bytes())
    if damage == "swapped":
        other = opened(tmp_path / "other")
        other.load(photograph(tmp_path / "b.png", seed=1), SIZE)
        content = bytearray(entries(tmp_path / "other")[0].read_bytes())
    elif damage == "bit":
        content[-5] ^= 1
    else:
        del content[0 if damage == "empty" else 100 :]
    entry.write_bytes(content)
    assert cache.load(path, SIZE).tobytes() == right
    assert opened(tmp_path / "cache").load(path, SIZE).tobytes() == right
    assert entry.read_bytes() != bytes(content)


def _fill(folder: Path, paths: list[str], rounds: int) -> None:
    cache = ImageCache(folder, no_warning)
    for _ in range(rounds):
        for path in paths:
            cache.load(path, SIZE)
    cache.check()


def test_writers_at_the_same_time_and_killed_ones_leave_only_whole_entries(tmp_path: Path) -> None:
    paths = [photograph(tmp_path / f"{number}.png", number) for number in range(8)]
    folder = tmp_path / "cache"
    opened(folder)
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_fill, args=(folder, paths, 3)) for _ in range(3)]
    killed = context.Process(target=_fill, args=(folder, paths, 10**6))
    for process in (*writers, killed):
        process.start()
    for process in writers:
        process.join()
        assert process.exitcode == 0
    os.kill(killed.pid or 0, signal.SIGKILL)
    killed.join()
    cache = opened(folder)
    for path in paths:
        assert cache.load(path, SIZE).tobytes() == opened(tmp_path / "alone").load(path, SIZE).tobytes()
    assert len([entry for entry in entries(folder) if entry.parent.name != "tmp"]) == 8


def test_what_killed_writers_left_is_removed_when_nobody_can_be_writing_it(tmp_path: Path) -> None:
    opened(tmp_path / "cache")
    old, new = (tmp_path / "cache" / "tmp" / name for name in ("old", "new"))
    for file in (old, new):
        file.write_bytes(b"half")
    os.utime(old, (1, 1))
    opened(tmp_path / "cache")
    assert (old.exists(), new.exists()) == (False, True)


def test_a_cache_that_is_a_file_is_refused_in_one_line(tmp_path: Path, configure: Configure) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file, not a folder") as caught:
        train(configure(data__cache=str(tmp_path / "file")), tmp_path / "run", Witness())
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_full_disk_is_one_warning_and_the_images_are_right(tmp_path: Path, workers: int) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("only root may mount a disk of 16 KB to fill")
    try:
        said: list[str] = []
        paths = [photograph(tmp_path / f"{number}.png", number) for number in range(12)]
        cache = opened(folder, said.append)
        for _ in range(2):
            got = torch.cat([images for images, _ in image_batches(paths, SIZE, 3, workers, cache)])
            assert torch.equal(got, torch.cat([images for images, _ in image_batches(paths, SIZE, 3, 0)]))
        assert len(said) == 1
        assert "No space left on device" in said[0]
        assert list((folder / "tmp").iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_folder_that_cannot_be_made_is_one_warning(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "file").touch()
    cache = opened(tmp_path / "file" / "cache", said.append)
    path = photograph(tmp_path / "a.png")
    assert cache.load(path, SIZE).size == (28, 28)
    cache.check()
    assert len(said) == 1
    assert "cannot be written (Not a directory)" in said[0]


def test_an_unreadable_image_is_said_as_without_a_cache(tmp_path: Path) -> None:
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no image")
    for path, reason in ((broken, "not an image"), (tmp_path / "missing.jpg", "no such file")):
        with pytest.raises(DataError, match=reason):
            opened(tmp_path / "cache").load(str(path), SIZE)


def test_training_with_a_cache_is_the_same_run_bit_for_bit(
    tmp_path: Path, configure: Configure, undisturbed: Path
) -> None:
    for name, workers in (("cold", 2), ("warm", 0)):
        train(configure(data__cache=str(tmp_path / "cache"), data__workers=workers), tmp_path / name, Witness())
        assert_same_run(tmp_path / name, undisturbed)
    assert len(entries(tmp_path / "cache")) == 20  # every image of both domains


def test_a_crop_at_random_scales_sees_the_whole_image(tmp_path: Path, configure: Configure) -> None:
    settings = {"data__augmentation": "resized_crop", "train__max_steps": 2}
    train(configure(**settings), tmp_path / "none", Witness())
    for name in ("cold", "warm"):
        train(configure(data__cache=str(tmp_path / "cache"), **settings), tmp_path / name, Witness())
        weights = [(tmp_path / run / "model" / "model.safetensors").read_bytes() for run in ("none", name)]
        assert weights[0] == weights[1]


def test_a_run_may_resume_with_a_cache_that_it_did_not_begin_with(
    tmp_path: Path, cut: Path, configure: Configure, undisturbed: Path
) -> None:
    train(configure(data__cache=str(tmp_path / "cache")), cut, Witness())
    assert_same_run(cut, undisturbed)


def _load(cache: ImageCache, path: str) -> None:
    cache.load(path, SIZE)
    cache.check()  # silent: only the main process speaks


def test_it_goes_to_loader_processes_that_are_started_afresh_and_hears_from_them(tmp_path: Path) -> None:
    said: list[str] = []
    cache = opened(tmp_path / "cache", said.append)
    (tmp_path / "cache" / "tmp").rmdir()
    path = photograph(tmp_path / "a.png")
    process = multiprocessing.get_context("spawn").Process(target=_load, args=(cache, path))
    process.start()
    process.join()
    assert process.exitcode == 0
    cache.check()
    cache.check()
    assert len(said) == 1
    assert "No such file or directory" in said[0]
