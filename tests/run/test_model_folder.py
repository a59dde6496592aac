"""A model that is saved reopens elsewhere and says the same."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import timm.data
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as some
from PIL import Image
from safetensors.torch import save_file

import pmtrans
from pmtrans.backbones.create import create_backbone
from pmtrans.config import BackboneConfig
from pmtrans.data.transforms import Preprocessing, evaluation_transform, preprocessing_for
from pmtrans.errors import ModelError, RunError
from pmtrans.files import write_atomically
from pmtrans.inference.predictor import model_folder
from pmtrans.model import Model
from pmtrans.run.model_card import ModelCard
from pmtrans.run.model_folder import TrainedModel, _crop_pct, load_model, save_model

SMALL = {"depth": 2, "embed_dim": 32, "num_heads": 2}
SWIN = {"embed_dim": 16, "depths": (1, 1), "num_heads": (1, 2), "window_size": 4}
FAMILIES: dict[str, tuple[str, dict[str, Any], int]] = {
    "vit": ("vit_tiny_patch16_224", SMALL, 32),
    "deit": ("deit_tiny_patch16_224", SMALL, 32),
    "distilled deit": ("deit_tiny_distilled_patch16_224", SMALL, 32),
    "swin": ("swin_tiny_patch4_window7_224", SWIN, 32),
    "swin at 224 px": ("swin_tiny_patch4_window7_224", {"embed_dim": 8, "depths": (1, 1), "num_heads": (1, 1)}, 224),
    "digits": ("pmtrans_digits_vit", {}, 24),
}  # fmt: skip
CLASSES = ("ant", "bee", "kätzchen")


def trained_model(
    family: str = "vit", head: str = "linear", bottleneck: int = 0, distillation_token: bool = True
) -> TrainedModel:
    torch.manual_seed(0)
    name, options, size = FAMILIES[family]
    backbone = create_backbone(name, "none", size, options, bottleneck, distillation_token)
    model = Model(backbone, len(CLASSES), head).eval()  # type: ignore[arg-type]
    for parameter in model.head.parameters():
        torch.nn.init.normal_(parameter)
    preprocessing = preprocessing_for(timm.data.resolve_data_config({}, model=backbone.trunk), size, 0.875)
    shape = {"bottleneck": bottleneck, "distillation_token": distillation_token}
    config = BackboneConfig.model_validate({"name": name, "weights": "none", "options": options, **shape})
    return TrainedModel(model, CLASSES, preprocessing, config)


@pytest.fixture
def photo() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (61, 83, 3), dtype=np.uint8))


@pytest.mark.parametrize("family", FAMILIES)
def test_timm_reopens_the_folder_with_classes_and_transform_and_says_the_same(
    family: str, tmp_path: Path, photo: Image.Image
) -> None:
    trained = trained_model(family)
    save_model(tmp_path / "model", trained)

    reopened = timm.create_model(f"local-dir:{tmp_path / 'model'}", pretrained=True).eval()
    transform = timm.data.create_transform(**timm.data.resolve_data_config({}, model=reopened))
    ours = evaluation_transform(trained.preprocessing)(photo)[None]
    theirs = transform(photo)[None]

    assert list(reopened.pretrained_cfg["label_names"]) == list(CLASSES)
    assert torch.allclose(ours, theirs, atol=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(reopened(theirs).softmax(1), trained.model(ours).softmax(1), atol=1e-6, rtol=0)


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_a_saved_model_loads_again_with_the_same_logits(head: str, tmp_path: Path) -> None:
    trained = replace(trained_model(head=head), temperature=1.7)
    save_model(tmp_path, trained)
    loaded = load_model(tmp_path)
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(loaded.model(images), trained.model(images))
    assert (loaded.classes, loaded.preprocessing, loaded.temperature) == (CLASSES, trained.preprocessing, 1.7)


def test_an_mlp_head_is_refused_by_timm_and_the_card_says_so(tmp_path: Path) -> None:
    save_model(tmp_path, trained_model(head="mlp"))
    assert "reopens through `pmtrans.load` only" in (tmp_path / "README.md").read_text()
    with pytest.raises(RuntimeError, match="pmtrans_head"):
        timm.create_model(f"local-dir:{tmp_path}", pretrained=True)


def test_a_backbone_named_by_a_folder_is_stored_by_its_architecture(tmp_path: Path) -> None:
    trained = trained_model()
    save_model(tmp_path, replace(trained, backbone=BackboneConfig(name="local-dir:/gone", options=SMALL)))
    assert load_model(tmp_path).backbone.name == "vit_tiny_patch16_224"


@given(size=some.integers(8, 600), ratio=some.floats(0.3, 1))
def test_timm_resizes_to_the_size_that_we_resize_to(size: int, ratio: float) -> None:
    preprocessing = preprocessing_for({"mean": (0.5,), "std": (0.5,)}, size, ratio)
    assert math.floor(size / _crop_pct(preprocessing)) == preprocessing.resize_to


def test_the_card_tells_data_method_numbers_limits_and_licence(tmp_path: Path) -> None:
    trained = replace(trained_model(), backbone=BackboneConfig(name="x", weights="timm", options=SMALL))
    numbers = {"oracle_accuracy": 0.8125, "something_else": 1.0}
    save_model(tmp_path, trained, ModelCard("pmtrans", "shop", 120, "phone|x", 80, {"seed": 3}, numbers))
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    for expected in ("shop, 120 images", "phone/x, 80 images", "| seed | 3 |", "| 81.2 |", "## Limits", "`kätzchen`"):
        assert expected in text
    assert "something_else" not in text
    front = yaml.safe_load(text.split("---")[1])
    assert front["library_name"] == "timm"
    assert front["license"] == trained.model.backbone.trunk.pretrained_cfg["license"]


def test_a_card_without_labels_of_the_target_asks_to_measure(tmp_path: Path) -> None:
    save_model(tmp_path, trained_model())
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "pmtrans evaluate" in text
    assert "no licence of a pretrained backbone applies" in text
    assert "license" not in yaml.safe_load(text.split("---")[1])


def test_of_a_weights_file_only_the_name_is_published(tmp_path: Path) -> None:
    weights = BackboneConfig(name="x", weights="/home/somebody/secret/w.safetensors", options=SMALL)
    save_model(tmp_path, replace(trained_model(), backbone=weights))
    published = (tmp_path / "README.md").read_text() + (tmp_path / "config.json").read_text()
    assert "w.safetensors" in published
    assert "somebody" not in published


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda config: config.pop("pmtrans"), "no 'pmtrans'"),
        (lambda config: config["pmtrans"].update(temperature=-1), "temperature: Input should be greater"),
        (lambda config: config["pmtrans"].update(backbone="vit_tinny_patch16_224"), "Did you mean"),
        (lambda config: config["pretrained_cfg"].update(label_names=["a", "b"]), "do not fit"),
    ],
)
def test_a_spoiled_configuration_is_one_line(
    change: Callable[[dict[str, Any]], None], said: str, tmp_path: Path
) -> None:
    save_model(tmp_path, trained_model())
    config = json.loads((tmp_path / "config.json").read_text())
    del config["pmtrans"]["checksum"]
    change(config)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=said) as caught:
        load_model(tmp_path)
    assert "\n" not in str(caught.value)


def test_truncated_weights_are_one_line(tmp_path: Path) -> None:
    save_model(tmp_path, trained_model())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelError, match="was changed since it was written"):
        load_model(tmp_path)


def test_a_run_without_a_model_says_so_and_so_does_any_other_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"neither a run folder nor a model folder: config.json is missing"):
        pmtrans.load(tmp_path)
    (tmp_path / "config.yaml").touch()
    with pytest.raises(RunError, match="has no model yet"):
        model_folder(tmp_path)


def test_preprocessing_is_stored_as_it_was(tmp_path: Path) -> None:
    odd = Preprocessing(32, 41, "bilinear", (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    save_model(tmp_path, replace(trained_model(), preprocessing=odd))
    assert load_model(tmp_path).preprocessing == odd


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_weights_have_the_mode_of_every_other_file(mask: int, saved_model: Callable[..., Path], tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        folder = saved_model()
        write_atomically(tmp_path / "one.safetensors", lambda path: save_file({"a": torch.zeros(1)}, path))
    finally:
        os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o777 for file in (*folder.iterdir(), tmp_path / "one.safetensors")}
    assert modes == dict.fromkeys(modes, 0o666 & ~mask)
    assert "model.safetensors" in modes


def test_a_file_that_may_not_be_read_is_not_called_missing(saved_model: Callable[..., Path]) -> None:
    folder = Path(shutil.copytree(saved_model(), tempfile.mkdtemp(), dirs_exist_ok=True))
    folder.chmod(0o755)
    (folder / "model.safetensors").chmod(0)
    is_root = os.geteuid() == 0
    if is_root:  # root may read everything
        os.seteuid(65534)
    try:
        with pytest.raises(ModelError, match=r"model\.safetensors is not readable for this user") as refused:
            load_model(folder)
    finally:
        if is_root:
            os.seteuid(0)
        shutil.rmtree(folder)
    assert "missing" not in str(refused.value)


@pytest.mark.parametrize(
    ("family", "head", "bottleneck"),
    [
        ("vit", "linear", 6),
        ("swin", "weight_norm", 6),
        ("vit", "weight_norm", 0),
        ("vit", "pair", 0),
        ("vit", "mlp_pair", 6),
    ],
)
def test_a_bottleneck_and_other_heads_reopen_and_say_the_same(
    family: str, head: str, bottleneck: int, tmp_path: Path
) -> None:
    trained = trained_model(family, head, bottleneck)
    images = torch.randn(5, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        trained.model.train()(images)  # statistics that are not those of the beginning
        expected = trained.model.eval()(images)
    save_model(tmp_path / "model", trained)
    reopened = load_model(tmp_path / "model")
    with torch.no_grad():
        assert torch.equal(reopened.model(images), expected)
    assert reopened.backbone.bottleneck == bottleneck
    assert reopened.model.backbone.features == (bottleneck or trained.model.backbone.trunk.num_features)
    assert "reopens through `pmtrans.load` only" in (tmp_path / "model" / "README.md").read_text()


def test_timm_reopens_a_distilled_deit_whose_class_token_alone_counts(tmp_path: Path) -> None:
    trained = trained_model("distilled deit", distillation_token=False)
    save_model(tmp_path / "model", trained)
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    theirs = timm.create_model(f"local-dir:{tmp_path / 'model'}", pretrained=True).eval()
    with torch.no_grad():
        class_token = theirs.forward_features(images)[:, 0]
        weight, bias = (trained.model.head.get_parameter(name) for name in ("weight", "bias"))
        expected = class_token @ weight.T + bias
        for found in (theirs(images), trained.model(images), load_model(tmp_path / "model").model(images)):
            assert torch.allclose(found, expected, atol=1e-5)
