"""``report.html``: the report of one run as a single, self-contained page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from markupsafe import Markup

from pmtrans.errors import RunError, one_line
from pmtrans.files import refuse_foreign, write_text
from pmtrans.pages.document import environment, render_document
from pmtrans.progress import Reporter
from pmtrans.report.drawing import inline_svg, report_style
from pmtrans.report.material import Material, read_material
from pmtrans.report.run_figures import save_figure
from pmtrans.report.section import Chart, Section
from pmtrans.report.sections import SECTIONS
from pmtrans.run.folder import refuse_own_part


def write_report(
    run: Path,
    out: Path | None = None,
    figures: bool = True,
    reporter: Reporter | None = None,
    allowed: Sequence[str] = (),
) -> Path:
    """The report of one run, finished or not; with ``figures``, each of them as PNG and SVG in ``run/figures`` too."""
    path = out or run / "report.html"
    refuse_own_part(path, run)
    material = read_material(run, allowed)
    if material.data is None:
        _refuse_to_lose_images(path, material.warnings)
    refuse_foreign(run / "figures")
    text, charts = render_report(material, reporter)
    try:
        for chart in charts if figures else ():
            save_figure(chart.figure, run / "figures" / chart.name)
    except OSError:
        if out is None:  # with --out elsewhere, a run that cannot be written gets a page and no files
            raise
    write_text(path, text)
    return path


def _refuse_to_lose_images(page: Path, warnings: Sequence[str]) -> None:
    """A page with images is not replaced by one without: the images may just be out of reach from here."""
    if page.is_file() and "data:image/" in page.read_text(encoding="utf-8", errors="replace"):
        raise RunError(
            f"{one_line(page)!r} shows images, which a new page could not: {warnings[-1].rstrip('.')}. "
            "Bring them back, or write the new page elsewhere with --out."
        )


def render_report(material: Material, reporter: Reporter | None = None) -> tuple[str, list[Chart]]:
    """The page of one run, and its figures."""
    sections: list[Section] = []
    with report_style(), (reporter or Reporter(quiet=True)).counted("report", len(SECTIONS)) as finished_one:
        for make in SECTIONS:
            section = make(material)
            sections += [] if section is None else [section]
            finished_one()
        text = render_page(material.name, sections, _subtitle(material))
    return text, [chart for section in sections for chart in section.charts]


def render_page(title: str, sections: Iterable[Section], subtitle: str = "") -> str:
    """A complete HTML document from sections."""
    rendered = [(section, _render(section)) for section in sections]
    return render_document("page.html", title=title, subtitle=subtitle, sections=rendered, script="page.js")


def _render(section: Section) -> Markup:
    charts = [
        {"svg": inline_svg(chart.figure, chart.name, chart.title), "title": chart.title, "wide": chart.wide}
        for chart in section.charts
        if chart.inline
    ]
    template = environment().get_template(section.template)
    return Markup(template.render(**section.values, lead=section.lead, charts=charts))


def _subtitle(material: Material) -> str:
    target = Path(material.config.data.target or "?").name
    given = material.summary.given if material.summary is not None else None
    source = given or " + ".join(Path(place).name for place in material.config.data.sources) or "?"
    return f"{material.method} · {material.config.backbone.name} · {source} → {target}"
