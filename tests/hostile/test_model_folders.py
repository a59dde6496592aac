"""A model folder that was received: it names an architecture, nothing to fetch, and nothing absurd."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from pmtrans.backbones.create import create_backbone
from pmtrans.config import BackboneConfig
from pmtrans.data.transforms import Preprocessing
from pmtrans.errors import ModelError
from pmtrans.model import Model
from pmtrans.run.model_folder import TrainedModel, load_model, save_model

OPTIONS = {"depth": 1, "embed_dim": 24, "num_heads": 2}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    backbone = BackboneConfig(name="vit_tiny_patch16_224", weights="none", options=OPTIONS)
    model = Model(create_backbone(backbone.name, "none", 32, OPTIONS), 2)
    preprocessing = Preprocessing(32, 36, "bicubic", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    save_model(tmp_path / "model", TrainedModel(model, ("cat", "dog"), preprocessing, backbone))
    return tmp_path / "model"


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
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    CHANGES[name](config)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ModelError) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "null", "{" * 9999, '{"pmtrans": ' + "9" * 5000 + "}", "\x00"])
def test_a_configuration_that_is_no_json_object_is_one_line(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ModelError):
        load_model(folder)


def nan(state: dict[str, torch.Tensor]) -> None:
    state["head.weight"][0, 0] = float("nan")


WEIGHTS: dict[str, Callable[[dict[str, torch.Tensor]], object]] = {
    "not finite": nan,
    "infinite": lambda state: state["norm.weight"].fill_(float("inf")),
    "missing": lambda state: state.pop("norm.weight"),
    "extra": lambda state: state.update(more=torch.zeros(2)),
    "another shape": lambda state: state.update({"norm.weight": torch.zeros(7)}),
    "no head": lambda state: [state.pop("head.weight"), state.pop("head.bias")],
    "empty": lambda state: state.clear(),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_that_are_not_whole_are_one_line(folder: Path, name: str) -> None:
    state = {key: value.clone() for key, value in safetensors.torch.load_file(folder / "model.safetensors").items()}
    WEIGHTS[name](state)
    safetensors.torch.save_file(state, folder / "model.safetensors")
    with pytest.raises(ModelError) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cut", [0, 4, 100, -1])
def test_weights_that_are_cut_off_are_one_line(folder: Path, cut: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(ModelError):
        load_model(folder)


def test_the_unchanged_folder_opens(folder: Path) -> None:
    assert load_model(folder).classes == ("cat", "dog")
