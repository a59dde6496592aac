"""Wrong paths and names are told before anything heavy is imported: no test of seconds, but of what they depend on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import timm

from pmtrans.cli.early import _architectures, method_names, require_backbone, require_model, require_run
from pmtrans.errors import ModelError, RunError
from pmtrans.methods import METHODS

ROOT = Path(__file__).parent.parent.parent
COUNT = """
import sys
from pmtrans.cli import main
heavy = {"torch", "timm", "numpy", "scipy", "sklearn", "matplotlib", "PIL", "pyarrow", "accelerate"}
for line in open(sys.argv[1]):
    sys.argv = ["pmtrans", *line.split()]
    try:
        main()
    except SystemExit as stopped:
        assert stopped.code == 2, (line, stopped.code)
    assert not heavy & set(sys.modules), (line, heavy & set(sys.modules))
"""


def test_no_verb_imports_anything_heavy_to_refuse_a_wrong_path_or_name(tmp_path: Path) -> None:
    data = f"--source {tmp_path} --target {tmp_path}"
    commands = [
        f"train --source nowhere --target {tmp_path} --out run",
        f"train --source {tmp_path} --target nowhere --out run",
        f"train {data} --out run --method pmtras",
        f"train {data} --out run --backbone vit_tny_patch16_224",
        f"train {data} --out run --weights nowhere.safetensors",
        f"train {data} --out run --recipe nowhere.yaml",
        f"train {data} --out run --from nowhere",
        f"train {data} --out run train.epocs=3",
        f"train {data} --out {tmp_path}",
        f"train --source {tmp_path} --out run",
        f"auto {data} --out run method.name=mcc",
        f"auto --source nowhere --target {tmp_path} --out run",
        f"auto {data} --out run --time soon",
        f"auto {data} --out {tmp_path}",
        f"train {data} --out run --device gpu",
        f"auto {data} --out run --device gpu",
        "check --source nowhere --target nowhere",
        "demo --method pmtras",
        "predict nowhere photos",
        f"predict {tmp_path / 'model'} nowhere",
        "watch nowhere --images photos",
        "bench office-31 --data nowhere --out run",
        "study nowhere.yaml --out run",
        "evaluate nowhere --data nowhere",
        "report nowhere",
        "label-these --run nowhere --out there",
        "export nowhere --out model.onnx",
        "serve nowhere",
    ]
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    (tmp_path / "commands").write_text("\n".join(commands))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", COUNT, str(tmp_path / "commands")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    assert len(said) == len(commands)
    assert all(line.startswith("error: ") for line in said)
    assert said[0] == "error: --source nowhere: there is no such folder or file"
    assert said[1] == "error: --target nowhere: there is no such folder or file"


def test_the_architectures_in_the_files_of_timm_are_those_it_lists() -> None:
    assert _architectures() == {*timm.list_models(), "pmtrans_digits_vit"}
    with pytest.raises(ModelError, match=r"has no model 'vit_tny_patch16_224'\. Did you mean 'vit_tiny_patch16_224'"):
        require_backbone("vit_tny_patch16_224.augreg_in21k")
    require_backbone("vit_tiny_patch16_224.no_such_tag")


def test_the_names_of_the_methods_are_those_of_their_files() -> None:
    assert method_names() == sorted(METHODS)


def test_what_is_a_run_and_what_has_a_model(tmp_path: Path, trained_run: Path) -> None:
    for folder in (trained_run, trained_run / "model", trained_run / "baseline"):
        require_model(folder)
    require_run(trained_run)
    (tmp_path / "config.yaml").touch()
    with pytest.raises(RunError, match="has no model yet"):
        require_model(tmp_path)
    with pytest.raises(ModelError, match="there is no such folder"):
        require_model(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"config\.yaml is missing"):
        require_run(trained_run / "model")
