"""A model folder that was received: it names an architecture, nothing to fetch, and nothing absurd."""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from pmtrans.backbones.create import create_backbone, outline_backbone
from pmtrans.config import BackboneConfig
from pmtrans.data.transforms import Preprocessing
from pmtrans.errors import ModelError
from pmtrans.model import Model
from pmtrans.run import misfit, model_folder
from pmtrans.run.model_folder import TrainedModel, load_model, save_model
from pmtrans.run.model_notes import ClassBalance, annotate_model
from tiny_data import TINY

OPTIONS = {"depth": 1, "embed_dim": 24, "num_heads": 2}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    backbone = BackboneConfig(name="vit_tiny_patch16_224", weights="none", options=OPTIONS)
    model = Model(create_backbone(backbone.name, "none", 32, OPTIONS), 2)
    preprocessing = Preprocessing(32, 36, "bicubic", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    save_model(tmp_path / "model", TrainedModel(model, ("cat", "dog"), preprocessing, backbone))
    return tmp_path / "model"


def change_config(folder: Path, change: Callable[[dict[str, Any]], object], keep_checksum: bool = False) -> None:
    """Without its checksum, a folder is one of an earlier version, or of somebody who knows what they forge."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if not keep_checksum:
        del config["pmtrans"]["checksum"]
    change(config)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


Change = Callable[[dict[str, Any]], object]
CHANGES: dict[str, Change] = {
    "hub": lambda config: config["pmtrans"].update(backbone="hf-hub:somebody/model"),
    "folder": lambda config: config["pmtrans"].update(backbone="local-dir:/etc"),
    "path": lambda config: config["pmtrans"].update(backbone="../../x"),
    "tag": lambda config: config["pmtrans"].update(backbone="vit_tiny_patch16_224.augreg_in21k"),
    "unknown": lambda config: config["pmtrans"].update(backbone="vit_of_nobody"),
    "a number": lambda config: config["pmtrans"].update(backbone=7),
    "absurd depth": lambda config: config["pmtrans"]["options"].update(depth=10**9),
    "absurd width": lambda config: config["pmtrans"]["options"].update(embed_dim=10**8),
    "many depths": lambda config: config["pmtrans"]["options"].update(depths=[1] * 10_000),
    "not a number": lambda config: config["pmtrans"]["options"].update(depth=float("nan")),
    "absurd image": lambda config: config["pmtrans"]["preprocessing"].update(image_size=10**6, resize_to=10**6),
    "no image": lambda config: config["pmtrans"]["preprocessing"].update(image_size=0),
    "text as size": lambda config: config["pmtrans"]["preprocessing"].update(image_size="big"),
    "no std": lambda config: config["pmtrans"]["preprocessing"].update(std=[0, 0, 0]),
    "no channels": lambda config: config["pmtrans"]["preprocessing"].update(mean=[]),
    "extra preprocessing": lambda config: config["pmtrans"]["preprocessing"].pop("mean"),
    "other head": lambda config: config["pmtrans"].update(head="os.system"),
    "head of a type": lambda config: config["pmtrans"].update(head=[]),
    "temperature": lambda config: config["pmtrans"].update(temperature=-1),
    "one class": lambda config: config["pretrained_cfg"].update(label_names=["only"]),
    "classes of numbers": lambda config: config["pretrained_cfg"].update(label_names=[1, 2]),
    "classes of no list": lambda config: config["pretrained_cfg"].update(label_names="ab"),
    "more classes": lambda config: config["pretrained_cfg"].update(label_names=["a", "b", "c"]),
    "options of no mapping": lambda config: config["pmtrans"].update(options=[1]),
    "checkpoint": lambda config: config["pmtrans"]["options"].update(checkpoint_path="/etc/passwd"),
    "no finite mean": lambda config: config["pmtrans"]["preprocessing"].update(mean=[float("nan")] * 3),
    "infinite std": lambda config: config["pmtrans"]["preprocessing"].update(std=[float("inf")] * 3),
    "huge mean": lambda config: config["pmtrans"]["preprocessing"].update(mean=[10**400] * 3),
    "negative std": lambda config: config["pmtrans"]["preprocessing"].update(std=[-0.5] * 3),
    "tiny std": lambda config: config["pmtrans"]["preprocessing"].update(std=[1e-320] * 3),
    "interpolation": lambda config: config["pmtrans"]["preprocessing"].update(interpolation="evil"),
    "crop of more": lambda config: config["pmtrans"]["preprocessing"].update(resize_to=16),
    "temperature of 401 digits": lambda config: config["pmtrans"].update(temperature=10**400),
    "temperature of nearly 0": lambda config: config["pmtrans"].update(temperature=1e-320),
    "infinite temperature": lambda config: config["pmtrans"].update(temperature=float("inf")),
    "absurd bottleneck": lambda config: config["pmtrans"].update(bottleneck=10**400),
    "no section": lambda config: config.pop("pmtrans"),
    "section of no mapping": lambda config: config.update(pmtrans=[]),
    "nothing": lambda config: config.clear(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_forged_configuration_is_one_line_and_opens_no_connection(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def connect(*_: object) -> None:
        raise AssertionError("the network is asked")

    monkeypatch.setattr(socket.socket, "connect", connect)
    change_config(folder, CHANGES[name])
    with pytest.raises(ModelError) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)
    assert "was changed since" not in str(caught.value)


def enlarge(config: dict[str, Any], size: int, **options: object) -> None:
    config["pmtrans"]["preprocessing"].update(image_size=size, resize_to=size)
    config["pmtrans"]["options"].update(options)


GIANTS: dict[str, Change] = {
    "patches of 1 pixel": lambda config: enlarge(config, 8192, patch_size=1),
    "large images": lambda config: enlarge(config, 8192),
    "wide layers": lambda config: enlarge(config, 32, mlp_ratio=16_384),
    "deep and wide": lambda config: enlarge(config, 32, depth=64, embed_dim=2048, num_heads=16),
    "many classes": lambda config: config["pretrained_cfg"].update(label_names=[str(k) for k in range(10**6)]),
    "a giant's name": lambda config: config["pmtrans"].update(backbone="vit_giant_patch14_clip_224", options={}),
    "wide bottleneck": lambda config: config["pmtrans"].update(bottleneck=16_384),
}


@pytest.mark.parametrize("name", GIANTS)
def test_an_architecture_that_is_not_that_of_the_weights_is_never_built(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Only its shapes are outlined: no tensor of it is allocated, so its size does not matter."""
    change_config(folder, GIANTS[name])
    monkeypatch.setattr(model_folder, "create_backbone", lambda *_: pytest.fail("built"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ModelError, match="weights do not fit") as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 200_000  # kB


@pytest.mark.parametrize("patches", [4, 3])
def test_the_number_of_patches_is_limited(folder: Path, monkeypatch: pytest.MonkeyPatch, patches: int) -> None:
    """Not every transformer has a tensor that tells it: attention takes its square whatever the weights are."""
    monkeypatch.setattr(misfit, "MAX_PATCHES", patches)
    if patches == 4:
        load_model(folder)
    else:
        with pytest.raises(ModelError, match="4 patches an image, at most 3"):
            load_model(folder)


@pytest.mark.parametrize("family", TINY)
@pytest.mark.parametrize("head", ["linear", "mlp", "weight_norm", "pair"])
def test_every_family_is_outlined_as_it_is_built(family: str, head: Any) -> None:
    name, options, size = TINY[family]
    for bottleneck in (0, 8):
        built = Model(create_backbone(name, "none", size, options, bottleneck), 3, head)
        with torch.device("meta"):
            outline = Model(outline_backbone(name, size, options, bottleneck, True), 3, head)
        assert all(tensor.is_meta for tensor in outline.state_dict().values())
        shapes, expected = ({n: v.shape for n, v in m.state_dict().items()} for m in (outline, built))
        assert shapes == expected
        assert outline.backbone.patches == built.backbone.patches


@pytest.mark.parametrize("text", ["", "[]", "null", "{" * 9999, '{"pmtrans": ' + "9" * 5000 + "}", "\x00"])
def test_a_configuration_that_is_no_json_object_is_one_line(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ModelError):
        load_model(folder)


def nan(state: dict[str, torch.Tensor]) -> None:
    state["head.weight"][0, 0] = float("nan")


NOT_FINITE, NO_FIT = "holds values that are not finite", "weights do not fit"
WEIGHTS: dict[str, tuple[Callable[[dict[str, torch.Tensor]], object], str]] = {
    "not finite": (nan, NOT_FINITE),
    "infinite": (lambda state: state["norm.weight"].fill_(float("inf")), NOT_FINITE),
    "missing": (lambda state: state.pop("norm.weight"), NO_FIT),
    "extra": (lambda state: state.update(more=torch.zeros(2)), NO_FIT),
    "another shape": (lambda state: state.update({"norm.weight": torch.zeros(7)}), NO_FIT),
    "no head": (lambda state: [state.pop("head.weight"), state.pop("head.bias")], NO_FIT),
    "empty": (lambda state: state.clear(), NO_FIT),
    "complex": (lambda state: state.update({"norm.weight": state["norm.weight"].to(torch.complex64)}), NO_FIT),
    "truth values": (lambda state: state.update({"norm.weight": state["norm.weight"] > 0}), NO_FIT),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_that_are_not_whole_are_one_line(folder: Path, name: str) -> None:
    change_config(folder, lambda config: None)
    change, said = WEIGHTS[name]
    state = {key: value.clone() for key, value in safetensors.torch.load_file(folder / "model.safetensors").items()}
    change(state)
    safetensors.torch.save_file(state, folder / "model.safetensors")
    with pytest.raises(ModelError, match=said) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cut", [0, 4, 100, -1])
def test_weights_that_are_cut_off_are_one_line(folder: Path, cut: int) -> None:
    change_config(folder, lambda config: None)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(ModelError):
        load_model(folder)


@pytest.mark.parametrize(
    "options",
    [{"depth": 10**9}, {"depth": float("inf")}, {"embed_dim": 10**8}, {"depth": 500, "embed_dim": 16_000},
     {"depths": [1] * 1000}],
)  # fmt: skip
def test_a_backbone_of_absurd_size_is_refused_before_it_is_built(options: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"^backbone\.options") as caught:
        create_backbone("vit_tiny_patch16_224", "none", 32, options)
    assert "\n" not in str(caught.value)


def test_the_unchanged_folder_opens(folder: Path) -> None:
    assert load_model(folder).classes == ("cat", "dog")


def test_the_checksum_of_the_weights_is_their_sha256(folder: Path) -> None:
    stored = json.loads((folder / "config.json").read_text(encoding="utf-8"))["pmtrans"]["checksum"]
    assert stored["weights"] == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_in_the_weights_is_one_line(folder: Path, bit: int) -> None:
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1 - 97 * bit] ^= 1 << bit
    file.write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.safetensors' was changed since it was written") as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


def opened(folder: Path) -> TrainedModel | None:
    """None where it is refused as a user is told."""
    try:
        return load_model(folder)
    except ModelError:
        return None


@pytest.mark.parametrize("seed", range(8))
def test_a_flipped_bit_in_the_configuration_is_one_line_or_harmless(folder: Path, seed: int) -> None:
    file, before = folder / "config.json", load_model(folder)
    for place in range(seed, file.stat().st_size, 8):
        content = bytearray(file.read_bytes())
        content[place] ^= 1 << ((place // 8) % 8)
        copy = folder.with_name(f"flipped-{place}")
        copy.mkdir()
        (copy / "model.safetensors").symlink_to(folder / "model.safetensors")
        (copy / "config.json").write_bytes(content)
        after = opened(copy)
        if after is not None:
            for name in ("classes", "preprocessing", "backbone", "temperature", "balance", "unknown"):
                assert getattr(after, name) == getattr(before, name), (place, name)


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config["pmtrans"].update(temperature=2.0),
        lambda config: config["pretrained_cfg"].update(label_names=["dog", "cat"]),
        lambda config: config["pmtrans"].update(checksum="none"),
        lambda config: config["pmtrans"]["checksum"].pop("weights"),
    ],
)
def test_a_changed_configuration_is_one_line_that_says_how_to_mean_it(folder: Path, change: Change) -> None:
    change_config(folder, change, keep_checksum=True)
    with pytest.raises(ModelError, match=r"config\.json' was changed since it was written.*remove 'checksum'"):
        load_model(folder)


def test_a_folder_of_an_earlier_version_has_no_checksum_and_opens(folder: Path) -> None:
    change_config(folder, lambda config: config["pmtrans"].update(temperature=2.0))
    assert load_model(folder).temperature == 2.0


def test_notes_keep_the_checksum_true_and_do_not_cover_damage(folder: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(folder, tmp_path / "damaged"))
    balance = ClassBalance((0.5, 0.5), (0.25, 0.75), (0.5, 0.5))
    annotate_model(folder, balance, None)
    assert load_model(folder).balance == balance
    change_config(damaged, lambda config: config["pmtrans"].update(temperature=2.0), keep_checksum=True)
    with pytest.raises(ModelError, match="was changed since it was written"):
        annotate_model(damaged, balance, None)


def test_names_that_are_not_utf8_have_a_checksum_too(folder: Path) -> None:
    trained = replace(load_model(folder), classes=("caf\udce9", "line\nbreak"))
    save_model(folder, trained)
    assert load_model(folder).classes == trained.classes
