"""Exported files say what the model says: real exporters, real runtimes, tiny models."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as some
from PIL import Image

from pmtrans.data.transforms import Preprocessing
from pmtrans.errors import ConfigError, DataError, ModelError, RunError
from pmtrans.inference.export.images import generated_images, images_for_parity
from pmtrans.inference.export.parity import ParityError, RuntimeOutput, measure_parity
from pmtrans.inference.export.resize import (
    TALL_IMAGES_VERTICALLY_FIRST,
    check_interpolation,
    horizontally_first,
    resampling_matrix,
    vertically_first,
)
from pmtrans.inference.export.write import choose_format, export_model
from pmtrans.inference.hub import push_model
from pmtrans.inference.predictor import load

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


@settings(max_examples=40, deadline=None)
@given(
    width=some.integers(1, 150),
    height=some.integers(1, 150),
    size=some.integers(1, 60),
    interpolation=some.sampled_from(sorted(FILTERS)),
    seed=some.integers(0, 99),
)
def test_the_resize_of_the_graph_is_pillows_bit_for_bit(
    width: int, height: int, size: int, interpolation: str, seed: int
) -> None:
    pixels = np.random.default_rng(seed).choice([0, 7, 128, 255], (height, width, 3)).astype(np.uint8)
    expected = np.asarray(Image.fromarray(pixels).resize((size, size), FILTERS[interpolation]))
    tall = TALL_IMAGES_VERTICALLY_FIRST and height > size and height - size > 2 * (width - size)
    matrices = (
        resampling_matrix(
            torch.arange(length, dtype=torch.float64), torch.tensor(length, dtype=torch.float64), size, interpolation
        )
        for length in (height, width)
    )
    in_order = vertically_first if tall else horizontally_first
    found = in_order(torch.from_numpy(pixels).permute(2, 0, 1)[None].double(), *matrices)
    assert np.array_equal(found[0].permute(1, 2, 0).numpy(), expected)


def test_another_interpolation_is_refused_in_one_line() -> None:
    with pytest.raises(ModelError, match="without --with-preprocessing"):
        check_interpolation("lanczos")


@pytest.mark.parametrize("family", ["vit", "distilled", "swin"])
def test_onnx_agrees_with_the_model_for_every_family(
    family: str, saved_model: Callable[..., Path], tmp_path: Path
) -> None:
    trained = load(saved_model(family, temperature=1.4)).trained
    parity = export_model(trained, tmp_path / "model.onnx", "onnx", generated_images())
    assert parity.agreeing == parity.images == 8
    assert parity.largest_difference < 1e-4
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    described = session.get_modelmeta().custom_metadata_map
    assert json.loads(described["classes"]) == ["ant", "bee", "cat"]
    assert float(described["temperature"]) == 1.4
    for batch in (1, 5):
        images = np.zeros((batch, 3, 32, 32), np.float32)
        logits, probabilities = session.run(["logits", "probabilities"], {"images": images})
        powers = np.exp(logits.astype(np.float64) / 1.4)
        assert probabilities.shape == (batch, 3)
        np.testing.assert_allclose(probabilities, powers / powers.sum(1, keepdims=True), atol=1e-6)


def test_preprocessing_inside_takes_8_bit_images_of_any_size(saved_model: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "inside.onnx"
    parity = export_model(load(saved_model()).trained, out, "onnx", generated_images(), with_preprocessing=True)
    assert parity.agreeing == 8
    assert parity.largest_difference < 1e-4
    assert b"/src/pmtrans" not in out.read_bytes()


def test_int8_weights_are_8_bits_and_the_names_are_kept(saved_model: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "int8.onnx"
    parity = export_model(load(saved_model()).trained, out, "onnx", generated_images(), int8=True)
    assert 1e-6 < parity.largest_difference < 0.1  # not the float model by another name
    model = onnx.load(out)
    kinds = {tensor.data_type for tensor in model.graph.initializer if len(tensor.dims) == 2}
    assert kinds == {onnx.TensorProto.INT8}
    assert "classes" in {entry.key for entry in model.metadata_props}
    assert [path.name for path in tmp_path.glob("*onnx*")] == ["int8.onnx"]


@pytest.mark.parametrize(("family", "with_preprocessing"), [("swin", False), ("vit", True)])
def test_a_torch_program_agrees_and_carries_the_class_names(
    family: str, with_preprocessing: bool, saved_model: Callable[..., Path], tmp_path: Path
) -> None:
    out = tmp_path / "model.pt2"
    parity = export_model(load(saved_model(family)).trained, out, "torch", generated_images(), with_preprocessing)
    assert parity.agreeing == 8
    assert parity.largest_difference < 1e-4
    extra = {"classes": ""}
    torch.export.load(out, extra_files=extra)
    assert json.loads(extra["classes"]) == ["ant", "bee", "cat"]


def test_a_mismatch_fails_and_leaves_no_file_but_the_old_one(saved_model: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "exports" / "model.pt2"
    out.parent.mkdir()
    out.write_text("an earlier export")
    trained = load(saved_model()).trained
    # The patch embedding answers differently when it is asked the second time: no export can agree with that.
    model = trained.model
    calls: list[int] = []
    model.backbone.stem.register_forward_hook(lambda *_: calls.append(1))
    plain = model.head.forward
    model.head.forward = lambda features: plain(features) * (3.0 if torch.compiler.is_compiling() else 1.0)
    with pytest.raises(ParityError, match="does not agree with the model"):
        export_model(trained, out, "torch", generated_images())
    assert calls
    assert [path.name for path in out.parent.iterdir()] == ["model.pt2"]
    assert out.read_text() == "an earlier export"


def test_parity_counts_top_classes_and_the_largest_difference(saved_model: Callable[..., Path]) -> None:
    trained = load(saved_model()).trained

    def uniform(images: np.ndarray) -> RuntimeOutput:
        third = np.full((len(images), 3), 1 / 3, np.float32)
        return RuntimeOutput(third, third)

    with torch.no_grad():
        expected = torch.stack([trained.model(_seen(trained.preprocessing, image)) for image in generated_images()])
    probabilities = expected[:, 0].softmax(1)
    parity = measure_parity(trained, uniform, generated_images(), with_preprocessing=False)
    assert parity.largest_difference == pytest.approx((probabilities - 1 / 3).abs().max().item(), abs=1e-6)
    assert parity.agreeing == int((probabilities.argmax(1) == 0).sum())
    broken = measure_parity(
        trained, lambda x: RuntimeOutput(*(2 * [np.full((len(x), 3), np.nan)])), generated_images(), False
    )
    assert broken.largest_difference == float("inf")


def _seen(preprocessing: Preprocessing, image: Image.Image) -> torch.Tensor:
    """The evaluation transform written out with Pillow and NumPy."""
    side, size = preprocessing.resize_to, preprocessing.image_size
    resized = np.asarray(image.resize((side, side), FILTERS[preprocessing.interpolation])) / 255
    start = round((side - size) / 2)
    cropped = resized[start : start + size, start : start + size]
    return torch.tensor((cropped - preprocessing.mean) / preprocessing.std).permute(2, 0, 1)[None].float()


def test_wrong_wishes_are_one_line(saved_model: Callable[..., Path], tmp_path: Path) -> None:
    trained = load(saved_model()).trained
    with pytest.raises(ModelError, match="--format onnx with --int8"):
        export_model(trained, tmp_path / "x.pt2", "torch", [], int8=True)
    with pytest.raises(RunError, match="is a folder"):
        export_model(trained, tmp_path, "onnx", [])
    lanczos = replace(trained, preprocessing=replace(trained.preprocessing, interpolation="lanczos"))
    with pytest.raises(ModelError, match="Interpolation"):
        export_model(lanczos, tmp_path / "x.onnx", "onnx", [], with_preprocessing=True)


def test_the_check_takes_given_images_else_the_runs_else_generated_ones(
    two_domains: tuple[Path, Path], tmp_path: Path
) -> None:
    source, target = two_domains
    run = tmp_path / "run"
    run.mkdir()
    assert images_for_parity(run, None)[1].startswith("generated")
    (run / "config.yaml").write_text(
        yaml.safe_dump({"data": {"source": str(source), "target": str(tmp_path / "gone")}})
    )
    images, place = images_for_parity(run, None)
    assert (len(images), place) == (16, str(source))
    (target / "ant" / "000.png").write_text("broken")
    images, place = images_for_parity(run, str(target))
    assert (len(images), place) == (16, str(target))
    (tmp_path / "no.jpg").write_text("broken")
    with pytest.raises(DataError, match="no image there can be read"):
        images_for_parity(run, str(tmp_path / "no.jpg"))


def test_a_hub_that_cannot_be_reached_is_one_clear_line(saved_model: Callable[..., Path]) -> None:
    with pytest.raises(ModelError, match=r"org/name on http://127.0.0.1:9 cannot be reached") as caught:
        push_model(saved_model(), "org/name", endpoint="http://127.0.0.1:9")
    assert "\n" not in str(caught.value)
    with pytest.raises(ModelError, match="not a valid repository name"):
        push_model(saved_model(name="other"), "not a name!", endpoint="http://127.0.0.1:9")


def test_the_ending_decides_the_format_and_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    assert choose_format(tmp_path / "x.pt2", None) == "torch"
    assert choose_format(tmp_path / "x.ONNX", None) == "onnx"
    assert choose_format(tmp_path / "x.bin", "torch") == "torch"
    with pytest.raises(ConfigError, match=r"contradicts the ending of --out '.*x\.onnx', which means onnx"):
        choose_format(tmp_path / "x.onnx", "torch")
    (tmp_path / "x.onnx").write_text("precious")
    with pytest.raises(RunError, match="exists: choose another file, or replace it with --overwrite"):
        choose_format(tmp_path / "x.onnx", "onnx")
    assert choose_format(tmp_path / "x.onnx", None, overwrite=True) == "onnx"
