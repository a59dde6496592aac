"""A malicious pickle under any name that a user can pass is refused, never executed."""

from __future__ import annotations

import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from pmtrans.backbones.create import create_backbone
from pmtrans.backbones.weights import read_state_dict
from pmtrans.cli import app
from pmtrans.config import read_recipe
from pmtrans.errors import ConfigError, ModelError, UserError
from pmtrans.inference.predictor import load
from pmtrans.settings import load_config
from pmtrans.training.checkpoint import BrokenCheckpoint, load_snapshot


class Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, int]]:
        return os.mkdir, (str(self.marker), 0o700)


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A folder that exists if anything was executed; the payload itself is shown to work."""
    path = tmp_path / "executed"
    pickle.loads(pickle.dumps(Payload(path)))
    assert path.is_dir()
    path.rmdir()
    return path


def write_raw(path: Path, marker: Path) -> None:
    path.write_bytes(pickle.dumps({"weight": Payload(marker)}))


def write_torch(path: Path, marker: Path) -> None:
    torch.save({"state_dict": {"weight": torch.zeros(2)}, "epoch": Payload(marker)}, path)


def write_torch_legacy(path: Path, marker: Path) -> None:
    torch.save({"weight": Payload(marker)}, path, _use_new_zipfile_serialization=False)


def write_tar(path: Path, marker: Path) -> None:
    inner = path.with_name("storages")
    inner.write_bytes(pickle.dumps(Payload(marker)))
    with tarfile.open(path, "w") as archive:
        for name in ("storages", "tensors", "pickle"):
            archive.add(inner, arcname=name)
    inner.unlink()


WRITERS = [write_raw, write_torch, write_torch_legacy, write_tar]
NAMES = ["w.pth", "w.pt", "w.bin", "w.ckpt", "w.pkl", "w.safetensors", "w.npz", "weights"]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("name", NAMES)
def test_as_weights(write: Callable[[Path, Path], None], name: str, tmp_path: Path, marker: Path) -> None:
    write(tmp_path / name, marker)
    with pytest.raises(ModelError) as refusal:
        read_state_dict(tmp_path / name)
    assert not marker.exists()
    assert str(refusal.value).isprintable()  # one line


def test_by_the_command_line(tmp_path: Path, marker: Path, two_domains: tuple[Path, Path]) -> None:
    write_torch(tmp_path / "w.pth", marker)
    domains = ["--source", str(two_domains[0]), "--target", str(two_domains[1])]
    model = ["--backbone", "vit_tiny_patch16_224", "--weights", str(tmp_path / "w.pth")]
    result = CliRunner().invoke(app, ["train", *domains, *model, "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, ModelError)
    assert not marker.exists()


@pytest.mark.parametrize("option", ["checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay", "pretrained"])
def test_by_an_option_that_timm_would_follow(option: str, tmp_path: Path, marker: Path) -> None:
    write_torch(tmp_path / "w.pth", marker)
    value = {"file": str(tmp_path / "w.pth")} if "cfg" in option else str(tmp_path / "w.pth")
    with pytest.raises(ModelError, match=rf"backbone\.options\.{option} is reserved"):
        create_backbone("vit_tiny_patch16_224", "none", 32, {option: value})
    assert not marker.exists()


def test_as_a_local_timm_folder(tmp_path: Path, marker: Path) -> None:
    (tmp_path / "config.json").write_text('{"architecture": "vit_tiny_patch16_224", "num_classes": 3}')
    write_torch(tmp_path / "pytorch_model.bin", marker)
    with pytest.raises(ModelError):
        create_backbone(f"local-dir:{tmp_path}", "timm", 224, {})
    assert not marker.exists()


@pytest.mark.parametrize("write", WRITERS)
def test_as_a_model_folder(write: Callable[[Path, Path], None], tmp_path: Path, marker: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        write(tmp_path / name, marker)
    with pytest.raises(UserError):
        load(tmp_path)
    assert not marker.exists()


@pytest.mark.parametrize("write", WRITERS)
def test_as_a_checkpoint(write: Callable[[Path, Path], None], tmp_path: Path, marker: Path) -> None:
    for name in ("state.json", "tensors.safetensors"):
        write(tmp_path / name, marker)
    with pytest.raises(BrokenCheckpoint):
        load_snapshot(tmp_path)
    assert not marker.exists()


def test_python_tags_in_a_recipe_or_an_override(tmp_path: Path, marker: Path) -> None:
    tag = f"!!python/object/apply:os.mkdir ['{marker}']"
    (tmp_path / "recipe.yaml").write_text(f"seed: {tag}\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_recipe(tmp_path / "recipe.yaml")
    with pytest.raises(ConfigError, match="not valid YAML"):
        load_config(None, [f"seed={tag}"])
    assert not marker.exists()
