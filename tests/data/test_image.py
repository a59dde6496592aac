"""Any image that people have becomes upright RGB, or one line that says why not."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from hostile_images import encoded, make_hostile_folder, noise, png_that_claims, with_orientation
from pmtrans.data.gate import MAX_PIXELS, UnavailableImage
from pmtrans.data.image import UnreadableImage, load_image
from pmtrans.errors import DataError


def write(path: Path, image: Image.Image, format: str, **options: object) -> str:
    path.write_bytes(encoded(image, format, **options))
    return str(path)


def pixels(path: str, at_least: int | None = None) -> np.ndarray:
    image = load_image(path, at_least)
    assert image.mode == "RGB"
    return np.asarray(image)


def test_every_good_file_is_read_and_every_bad_one_is_one_line(tmp_path: Path) -> None:
    hostile = make_hostile_folder(tmp_path)
    assert len(hostile.good) + len(hostile.bad) >= 40
    for path in hostile.good:
        assert load_image(path).mode == "RGB", path
    for path in hostile.bad:
        with pytest.raises(DataError) as caught:
            load_image(path)
        assert len(str(caught.value).splitlines()) == 1
        assert str(caught.value).startswith(path)
        assert caught.value.reason  # type: ignore[attr-defined]


def test_reduced_decoding_finds_truncated_files_too(tmp_path: Path) -> None:
    for progressive in (False, True):
        data = encoded(noise(0, (640, 480)), "JPEG", progressive=progressive)
        for eighth in range(8):
            path = tmp_path / "truncated.jpg"
            path.write_bytes(data[: len(data) * eighth // 8])
            with pytest.raises(UnreadableImage):
                load_image(str(path), at_least=1)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_applied(tmp_path: Path, orientation: int) -> None:
    upright = np.asarray(noise(1, (8, 10)))
    stored = {  # what a camera stores when it is held in each way
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.swapaxes(0, 1),
        6: np.rot90(upright, 1),
        7: upright[::-1, ::-1].swapaxes(0, 1),
        8: np.rot90(upright, -1),
    }[orientation]
    image = Image.fromarray(np.ascontiguousarray(stored))
    for format in ("PNG", "TIFF", "WEBP"):
        options = {"lossless": True} if format == "WEBP" else {}
        path = write(tmp_path / f"{orientation}.{format}", image, format, exif=with_orientation(orientation), **options)
        assert np.array_equal(pixels(path), upright), format
        with Image.open(path) as opened:
            assert np.array_equal(np.asarray(ImageOps.exif_transpose(opened)), upright)


def test_transparency_is_laid_on_white(tmp_path: Path) -> None:
    image = Image.new("RGBA", (3, 1))
    image.putdata([(255, 0, 0, 255), (255, 0, 0, 0), (0, 0, 0, 51)])
    expected = [[255, 0, 0], [255, 255, 255], [204, 204, 204]]  # 51 is a fifth
    assert pixels(write(tmp_path / "a.png", image, "PNG"))[0].tolist() == expected


def test_transparent_palette_and_grey_are_laid_on_white(tmp_path: Path) -> None:
    palette = Image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.putdata([0, 1])
    path = write(tmp_path / "p.png", palette, "PNG", transparency=1)
    assert pixels(path)[0].tolist() == [[10, 20, 30], [255, 255, 255]]
    grey = Image.new("LA", (2, 1))
    grey.putdata([(7, 255), (7, 0)])
    assert pixels(write(tmp_path / "la.png", grey, "PNG"))[0].tolist() == [[7, 7, 7], [255, 255, 255]]


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_by_the_full_range(tmp_path: Path, format: str) -> None:
    values = [0, 257, 1000, 30000, 65535]
    image = Image.fromarray(np.array([values], dtype=np.uint16))
    found = pixels(write(tmp_path / f"x.{format}", image, format))[0, :, 0]
    assert found.tolist() == [round(value / 257) for value in values]


def test_floats_between_zero_and_one_fill_the_range(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[0.0, 0.2, 1.0]], dtype=np.float32))
    assert pixels(write(tmp_path / "f.tif", image, "TIFF"))[0, :, 0].tolist() == [0, 51, 255]


def test_floats_of_any_range_are_stretched(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[-3.0, np.nan, 3.0]], dtype=np.float32))
    assert pixels(write(tmp_path / "f.tif", image, "TIFF"))[0, :, 0].tolist() == [0, 128, 255]


def test_cmyk_keeps_its_colours(tmp_path: Path) -> None:
    red = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    found = pixels(write(tmp_path / "c.jpg", red, "JPEG", quality=95))
    assert np.abs(found.astype(int) - [255, 0, 0]).max() < 8


def test_the_first_frame_is_taken(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "lime")]
    path = write(tmp_path / "a.gif", frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert pixels(path)[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize(("at_least", "size"), [(300, (400, 300)), (301, (800, 600)), (None, (1600, 1200))])
def test_jpeg_is_reduced_but_never_below_what_is_needed(
    tmp_path: Path, at_least: int | None, size: tuple[int, int]
) -> None:
    path = write(tmp_path / "large.jpg", noise(3, (1600, 1200)), "JPEG")
    assert load_image(path, at_least).size == size
    held_upright = write(tmp_path / "turned.jpg", noise(3, (1600, 1200)), "JPEG", exif=with_orientation(6))
    assert load_image(held_upright, at_least).size == size[::-1]


def test_reduced_decoding_shows_the_same_picture(tmp_path: Path) -> None:
    path = write(tmp_path / "large.jpg", noise(4, (1600, 1280)), "JPEG", quality=95)
    full = load_image(path).resize((200, 160), Image.Resampling.BOX)
    reduced = load_image(path, 160)
    assert reduced.size == (200, 160)
    assert np.abs(np.asarray(full, dtype=int) - np.asarray(reduced)).mean() < 3


def test_the_limit_of_pixels_holds_whatever_pillow_is_set_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    path = tmp_path / "bomb.png"
    path.write_bytes(png_that_claims(MAX_PIXELS // 1000 + 1, 1000))
    with pytest.raises(UnreadableImage, match="pixels"):
        load_image(str(path))


def test_a_file_without_permission_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = os.path.join(folder, "secret.png")
        Path(path).write_bytes(encoded(noise(5), "PNG"))
        os.chmod(path, 0)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(65534)  # root may read everything
        try:
            with pytest.raises(UnavailableImage, match="permission denied"):
                load_image(path)
        finally:
            if is_root:
                os.seteuid(0)


def test_reasons_say_what_is_the_matter(tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "folder.jpg").mkdir()
    os.symlink("nowhere", tmp_path / "link.jpg")
    (tmp_path / "phone.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(50))
    reasons = {}
    for name in ("empty.jpg", "folder.jpg", "link.jpg", "none.jpg"):
        with pytest.raises(UnreadableImage) as caught:
            load_image(str(tmp_path / name))
        reasons[name] = caught.value.reason
    assert reasons == {
        "empty.jpg": "empty file",
        "folder.jpg": "not a regular file",
        "link.jpg": "broken link",
        "none.jpg": "no such file",
    }


def test_heic_is_read_or_the_extra_is_named(tmp_path: Path) -> None:
    path = tmp_path / "phone.heic"
    try:
        import pillow_heif
    except ImportError:
        path.write_bytes(b"\0\0\0\x18ftypheic" + bytes(50))
        with pytest.raises(UnreadableImage, match=r"pip install 'pmtrans\[heif\]'"):
            load_image(str(path))
    else:
        pillow_heif.from_pillow(noise(6, (64, 48))).save(path)
        assert load_image(str(path)).size == (64, 48)
