"""A figure is drawn as often as it is written, and once for its layout."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from pmtrans.report.drawing import inline_svg, new_axes
from pmtrans.report.run_figures import save_figure


def test_no_figure_is_drawn_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure, axes = new_axes()
    axes.plot([1, 2, 3])
    drawn: list[object] = []
    draw = Figure.draw

    def counted(self: Figure, renderer: object) -> None:
        drawn.append(renderer)
        draw(self, renderer)

    monkeypatch.setattr(Figure, "draw", counted)
    inline_svg(figure, "a", "A line")
    save_figure(figure, tmp_path / "a")  # PNG and SVG
    assert len(drawn) == 1 + 3


def test_an_svg_has_no_date_whatever_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "9" * 30)
    figure, axes = new_axes()
    axes.plot([1, 2, 3])
    save_figure(figure, tmp_path / "a")
    assert "dc:date" not in (tmp_path / "a.svg").read_text()
