"""Printed characters on the counting grid."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from pmtrans.data.demo.glyphs import FONTS, LETTERS, Variation, font_path, render_glyph, render_letters


@pytest.mark.parametrize("font", FONTS)
def test_in_every_font_all_digits_and_letters_are_different_from_each_other(font: str) -> None:
    characters = "0123456789" + LETTERS
    random = np.random.default_rng(0)
    grids = {render_glyph(character, font, Variation(), random).tobytes() for character in characters}
    assert len(grids) == len(characters)


@pytest.mark.parametrize(("character", "font"), [("3", "DejaVuSans-Bold"), ("8", "cmr10"), ("R", "cmtt10")])
def test_a_glyph_without_variation_agrees_with_a_plain_drawing_counted_by_loops(character: str, font: str) -> None:
    drawn = ImageFont.truetype(str(font_path(font)), 400)
    box = drawn.getbbox(character)
    page = Image.new("L", (int(box[2] - box[0]), int(box[3] - box[1])))
    ImageDraw.Draw(page).text((-box[0], -box[1]), character, fill=255, font=drawn)
    page = page.crop(page.getbbox())
    width = min(round(32 * page.width / page.height), 24)
    bitmap = Image.new("L", (32, 32))
    bitmap.paste(page.resize((width, 32), Image.Resampling.BOX), ((32 - width) // 2, 0))
    counts = np.zeros((8, 8))
    pixels = np.asarray(bitmap)
    for row in range(32):
        for column in range(32):
            counts[row // 4, column // 4] += pixels[row, column] >= 128
    rendered = render_glyph(character, font, Variation(), np.random.default_rng(0))
    # half a pixel of difference in placement moves a few counts along the edges
    assert np.abs(rendered - counts).mean() < 1.0
    assert np.corrcoef(rendered.ravel(), counts.ravel())[0, 1] > 0.95


def test_a_thicker_stroke_has_more_ink() -> None:
    def ink(gain: float) -> int:
        variation = Variation(thinner=-gain, thicker=gain)  # one value is left to draw from
        return int(render_glyph("S", "DejaVuSans", variation, np.random.default_rng(0)).sum())

    assert ink(0.0) < ink(0.03) < ink(0.06)


def test_letters_are_deterministic_counts_and_every_class_occurs() -> None:
    grids, labels = render_letters(400, seed=5)
    again, labels_again = render_letters(400, seed=5)
    np.testing.assert_array_equal(grids, again)
    np.testing.assert_array_equal(labels, labels_again)
    assert grids.shape == (400, 8, 8)
    assert grids.max() <= 16
    assert set(labels) == set(range(len(LETTERS)))


def test_the_alphabet_of_the_pretraining_has_no_digit_and_no_letter_that_looks_like_one() -> None:
    assert LETTERS.isalpha()
    assert LETTERS.isascii()
    assert not set(LETTERS) & set("0123456789OoIl")
    assert len(set(LETTERS)) == len(LETTERS)
