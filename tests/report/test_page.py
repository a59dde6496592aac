from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from pmtrans.data.domains import read_data
from pmtrans.errors import RunError
from pmtrans.files import write_json
from pmtrans.progress import Reporter
from pmtrans.report.comparison import write_comparison
from pmtrans.report.figures import draw_accuracy
from pmtrans.report.material import read_material
from pmtrans.report.page import render_report, write_report
from pmtrans.report.sections.cautions import cautions
from pmtrans.report.sections.curves import training
from pmtrans.report.sections.headline import headline
from pmtrans.report.sections.per_class import confusion
from pmtrans.run.folder import RunFolder
from pmtrans.selection.evidence import read_evidence
from pmtrans.settings import load_config
from pmtrans.training.train import train
from tiny_run import write_images


class Elements(HTMLParser):
    """What a browser would see: elements with their attributes, and the text that is shown."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.text.append(data)

    def sections(self) -> list[str | None]:
        return [attributes.get("id") for tag, attributes in self.elements if tag == "section"]

    def shown(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.text))


def rendered(run: Path) -> Elements:
    """The page alone: the files of figures are tested once."""
    return Elements(render_report(read_material(run))[0])


@pytest.fixture(scope="module")
def page(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A copy of the run with its report."""
    run = tmp_path_factory.mktemp("page") / "run"
    shutil.copytree(trained_run, run)
    assert write_report(run) == run / "report.html"
    return run, (run / "report.html").read_text(encoding="utf-8")


@pytest.fixture
def copied(trained_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained_run, tmp_path / "run"))


def test_a_finished_run_has_every_section(page: tuple[Path, str]) -> None:
    seen = Elements(page[1])
    assert {
        "headline", "facts", "accuracy", "validators", "features", "confusion", "classes", "certainty", "attention",
        "training", "mixing", "mixed", "pseudo-labels", "game",
    } <= set(seen.sections())  # fmt: skip
    summary = json.loads((page[0] / "summary.json").read_text())
    for number in (summary["source_only"], summary["adapted"], summary["estimate"]["accuracy"]):
        assert f"{100 * number:.1f} %" in seen.shown()
    assert summary["verdict_reason"] in seen.shown()


def test_figures_lie_beside_it_as_png_and_svg(page: tuple[Path, str]) -> None:
    folder = page[0] / "figures"
    stems = {path.stem for path in folder.glob("*.svg")}
    assert stems == {path.stem for path in folder.glob("*.png")}
    assert {
        "losses", "accuracy", "validators", "features", "confusion-before", "confusion-after", "class-shares",
        "attention", "mixed", "beta-density", "beta-plane", "beta-path", "label-weights", "pseudo-labels",
    } <= stems  # fmt: skip
    with Image.open(folder / "features.png") as picture:
        assert picture.width > 400


def test_nothing_in_it_asks_for_a_network_or_runs_a_foreign_script(page: tuple[Path, str]) -> None:
    seen = Elements(page[1])
    addresses = [
        value
        for tag, attributes in seen.elements
        for name, value in attributes.items()
        if name in ("src", "href", "xlink:href", "srcset", "action", "poster") and value is not None
    ]
    assert addresses
    assert all(address.startswith(("#", "data:image/")) for address in addresses)
    policy = next(a["content"] for t, a in seen.elements if t == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:;")
    scripts = [attributes for tag, attributes in seen.elements if tag == "script"]
    assert [attributes.get("type") for attributes in scripts] == ["application/json", None]
    assert not [name for _, attributes in seen.elements for name in attributes if name.startswith("on")]


def test_names_are_text_whatever_they_hold(page: tuple[Path, str]) -> None:
    assert "<script>alert(1)" not in page[1]
    shown = Elements(page[1]).shown()
    assert "<script>alert(1)<" in shown
    assert "ant & $bee$" in shown


def test_ids_are_unique_in_the_page(page: tuple[Path, str]) -> None:
    seen = Elements(page[1])
    counts = Counter(attributes["id"] for _, attributes in seen.elements if "id" in attributes)
    assert [name for name, count in counts.items() if count > 1] == []
    used = {
        value[1:] for _, a in seen.elements for n, value in a.items() if n == "xlink:href" and value and value[0] == "#"
    }
    assert used
    assert used <= counts.keys()


def test_the_map_has_a_point_for_each_image_under_each_model(page: tuple[Path, str]) -> None:
    seen = Elements(page[1])
    circles = [attributes["class"] for tag, attributes in seen.elements if tag == "circle"]
    evidence = read_evidence(page[0] / "evidence.safetensors")
    assert circles.count("s") == 2 * len(evidence.source_labels_N)
    assert circles.count("t") == 2 * len(evidence.target_logits_MK)


def test_a_run_without_target_labels_and_baseline_has_a_report(copied: Path, tmp_path: Path, trained_run: Path) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    for number, image in enumerate(sorted((trained_run.parent / "target").rglob("*.png"))):
        shutil.copy(image, flat / f"{number}.png")
    old = load_config(copied / "config.yaml")
    config = load_config(
        copied / "config.yaml", ["train.baseline=false", "train.max_steps=2"], {"data.target": str(flat)}
    )
    assert old.method == config.method
    train(config, tmp_path / "plain", Reporter(quiet=True))
    seen = rendered(tmp_path / "plain")
    assert "accuracy" not in seen.sections()
    assert {"features", "classes", "attention"} <= set(seen.sections())
    assert "The target has no labels." in seen.shown()
    assert "Estimated target accuracy of the shipped model" in seen.shown()
    assert "Shares of the classes" in seen.shown()


def test_another_method_has_no_beta(copied: Path, tmp_path: Path) -> None:
    flags = {"method": {"name": "source_only"}}
    config = load_config(copied / "config.yaml", ["train.max_steps=2"], flags)
    train(config, tmp_path / "plain", Reporter(quiet=True))
    seen = rendered(tmp_path / "plain")
    assert {"mixing", "mixed", "game", "pseudo-labels"}.isdisjoint(seen.sections())
    assert "Trained on the source only" in seen.shown()


def test_an_unfinished_run_says_so(copied: Path) -> None:
    for name in ("summary.json", "evidence.safetensors", "model"):
        path = copied / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    lines = (copied / "metrics.jsonl").read_text().splitlines()[:5]
    (copied / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 5, "lo')
    seen = rendered(copied)
    assert "This run is not finished" in seen.shown()
    step = json.loads(lines[-1])["step"]
    assert f"at step {step} of 6 of adaptation" in seen.shown()


def test_a_run_that_has_not_logged_anything_has_a_page_too(copied: Path) -> None:
    shutil.rmtree(copied / "baseline")
    for name in ("summary.json", "evidence.safetensors", "metrics.jsonl"):
        (copied / name).unlink()
    assert "Training has not logged a step yet." in rendered(copied).shown()


def test_images_that_went_away_are_left_out_with_a_word(copied: Path) -> None:
    config = (copied / "config.yaml").read_text()
    (copied / "config.yaml").write_text(re.sub(r"target: .*", "target: /nowhere/at/all", config, count=1))
    seen = rendered(copied)
    assert "The images of this run cannot be read, so none are shown" in seen.shown()
    assert {"attention", "certainty", "mixed"}.isdisjoint(seen.sections())
    assert "features" in seen.sections()


def write_frames(folder: Path) -> None:
    """Of each class five scenes of four frames that look alike."""
    for label, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        for number in range(20):
            scene = np.random.default_rng([label, number // 4]).integers(0, 200, (6, 6, 3), dtype=np.uint8)
            picture = Image.fromarray(scene + np.uint8(number % 4)).resize((64, 64), Image.Resampling.BICUBIC)
            picture.save(folder / name / f"{number:02d}.png")


def test_images_are_shown_where_look_alikes_were_held_out_together(tiny_settings: list[str], tmp_path: Path) -> None:
    write_frames(tmp_path / "source")
    write_images(tmp_path / "target", images=6)
    domains = {"data.source": str(tmp_path / "source"), "data.target": str(tmp_path / "target")}
    config = load_config(None, [*tiny_settings, "data.holdout=0.2"], domains)
    drawn = read_data(config, Reporter(quiet=True), decode=False)
    train(config, tmp_path / "run", Reporter(quiet=True))

    material = read_material(tmp_path / "run")
    assert material.data is not None, material.warnings
    assert material.data.held_places != drawn.held_places  # not what single images would have given
    assert len(material.data.holdout) == 8
    (tmp_path / "run" / "holdout.json").unlink()  # a run of an earlier version
    again = read_material(tmp_path / "run").data
    assert again is not None
    assert again.holdout.paths == material.data.holdout.paths
    (tmp_path / "run" / "holdout.json").write_text("[999]")
    assert read_material(tmp_path / "run").data is None


def test_a_page_with_images_is_not_replaced_by_one_without(page: tuple[Path, str], tmp_path: Path) -> None:
    run = Path(shutil.copytree(page[0], tmp_path / "run"))
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(re.sub(r"target: .*", "target: photos/from/elsewhere", config, count=1))
    with pytest.raises(RunError, match=r"report\.html' shows images, which a new page could not: .* --out"):
        write_report(run)
    assert (run / "report.html").read_text(encoding="utf-8") == page[1]
    assert write_report(run, tmp_path / "new.html", figures=False).is_file()


def test_warnings_of_training_and_of_the_verdict_are_shown(copied: Path) -> None:
    summary = json.loads((copied / "summary.json").read_text())
    said = {"verdict": "hurt", "compared_with": "source_only", "source_only": 0.4, "adapted": 0.6}
    write_json(copied / "summary.json", summary | said)
    with (copied / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 6, "event": "evaluation", "warnings": ["Class <b>x</b> is dying"]}) + "\n")
        for step in (2, 4, 6):
            said_at = [f"Class y is dying: 9 images before, {9 - step} now"]
            file.write(json.dumps({"step": step, "event": "evaluation", "warnings": said_at}) + "\n")
    section = cautions(read_material(copied))
    assert section is not None
    shown = section.values["warnings"]
    assert "Step 6: Class <b>x</b> is dying" in shown
    assert [text for text in shown if "Class y" in text] == [
        "Steps 2 to 6 (3 times): Class y is dying: 9 images before, 3 now"
    ]
    assert "Without labels the verdict is «hurt»; the target's labels say +20.0 points." in shown
    top = headline(read_material(copied))
    assert top.values["advice"].startswith("The target's labels say otherwise: trust them. Shipped: ")


def test_the_legend_of_the_shares_lies_on_nothing_and_steps_are_whole_numbers(trained_run: Path) -> None:
    material = read_material(trained_run)
    section = confusion(material)
    assert section is not None
    figure = next(chart.figure for chart in section.charts if chart.name == "class-shares")
    figure.draw_without_rendering()
    [axes], [legend] = figure.axes, figure.legends or [axes.get_legend() for axes in figure.axes]
    assert not legend.get_window_extent().overlaps(axes.xaxis.get_tightbbox())
    first, last = axes.get_ylim()
    assert (first, last) == (2.5, -0.5)  # three classes, none on the edge

    axes = Figure(figsize=(4.6, 3)).subplots()
    draw_accuracy(axes, {"pmtrans": [{"step": step, "oracle_accuracy": 0.5} for step in (2, 4, 6)]})
    assert all(tick == int(tick) for tick in axes.get_xticks())


def test_a_model_that_was_changed_is_left_out_with_a_word(copied: Path) -> None:
    weights = RunFolder(copied).baseline.model / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    section = cautions(read_material(copied))
    assert section is not None
    said = [text for text in section.values["warnings"] if "No picture of this model is shown" in text]
    assert len(said) == 1
    assert "baseline/model/model.safetensors' was changed since it was written" in said[0]


def test_a_folder_that_is_no_run_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is not a run folder: config\.yaml is missing"):
        write_report(tmp_path)


def test_runs_are_compared_in_a_table_in_curves_and_in_what_differs(trained_run: Path, copied: Path) -> None:
    config = (copied / "config.yaml").read_text()
    (copied / "config.yaml").write_text(config.replace("seed: 0", "seed: 7", 1))
    (copied / "summary.json").unlink()
    other = copied.rename(copied.parent / "<b>other")
    out = copied.parent / "both.html"
    assert write_comparison([trained_run, other], out) == out
    seen = Elements(out.read_text(encoding="utf-8"))
    assert seen.sections() == ["runs", "curves", "settings"]
    assert "<b>other" in seen.shown()
    assert "not finished" in seen.shown()
    differing = seen.shown().split("Settings that differ")[-1]
    assert "seed" in differing
    assert "learning_rate" not in differing
    with pytest.raises(RunError, match="named twice"):
        write_comparison([trained_run, trained_run])


def test_a_page_about_55000_images_and_345_classes_stays_below_15_megabytes(large_page: Path) -> None:
    assert large_page.stat().st_size < 15_000_000
    seen = Elements(large_page.read_text(encoding="utf-8"))
    assert "600 of 55 000 target images" in seen.shown().replace("\u202f", " ")


def test_long_logs_are_thinned(copied: Path) -> None:
    with (copied / "metrics.jsonl").open("a") as file:
        for step in range(7, 60_000):
            file.write(json.dumps({"step": step, "loss": 1.0 / step, "classification": 0.5}) + "\n")
    section = training(read_material(copied))
    assert section is not None
    curves = [line for chart in section.charts for axes in chart.figure.axes for line in axes.lines]
    assert max(len(line.get_xdata()) for line in curves) == 400
