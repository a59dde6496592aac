from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pmtrans.errors import ConfigError
from pmtrans.methods import METHODS
from pmtrans.settings import REMOVED, load_config


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("train.learning_rat=1", "Unknown key 'train.learning_rat'. Did you mean 'train.learning_rate'?"),
        ("trian.epochs=1", "Unknown key 'trian'"),
        ("method.temprature=1", "Unknown key 'method.temprature'. Did you mean 'method.temperature'?"),
        ("train.epochs=many", "Key 'train.epochs' cannot be 'many'"),
        ("train.epochs=0", "Key 'train.epochs' cannot be '0'"),
        ("data.augmentation=heavy", "Key 'data.augmentation' cannot be 'heavy'"),
        ("method.name=pmtran", "Unknown method 'pmtran'. Did you mean 'pmtrans'?"),
        ("method.beta=fixed(9,9)", "beta_start 9.0 is not between beta_floor 0.3 and beta_ceiling 5.0"),
        (
            "method={pseudo_labels: neighbours, reuse_features: true}",
            "reuse_features is not for pseudo_labels=neighbours",
        ),
        ("train.epochs", "is not of the form section.key=value"),
        ("seed.x.y=1", "cannot be"),
        ("train.epochs=[1", "not valid YAML"),
    ],
)
def test_a_mistake_gets_one_line_that_names_the_key(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, [override])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "key", "instead"),
    [
        ("pmtrans", "warmup", "train.start=source"),
        ("cdan", "warmup", "train.start=source"),
        ("shot", "source_share", "train.start=source"),
        ("ckb", "start", "train.start=source"),
        ("fixbi", "matching", "method.alone"),
    ],
)
def test_a_key_that_is_gone_gets_one_line_with_what_stands_for_it(
    name: str, key: str, instead: str, tmp_path: Path
) -> None:
    recipe = tmp_path / "config.yaml"
    recipe.write_text(f"method: {{name: {name}, {key}: 0.2}}\n")
    both: list[tuple[Path | None, list[str]]] = [
        (recipe, []),
        (None, [f"method.name={name}", f"method.{key}=0.2"]),
    ]
    for given in both:
        with pytest.raises(
            ConfigError, match=rf"^Key 'method\.{key}' is gone: runs have a source stage now \("
        ) as caught:
            load_config(*given)
        assert instead in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_removed_key_is_not_one_that_a_method_has() -> None:
    assert not [name for name, entry in METHODS.items() if REMOVED.keys() & entry.options.model_fields.keys()]


def test_later_ones_win_recipe_then_flags_then_overrides(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("train: {epochs: 3, batch_size: 8}\nmethod: {name: pmtrans, temperature: 0.5}\nseed: 4\n")
    config = load_config(recipe, ["train.epochs=7"], {"train.batch_size": 16, "seed": None})
    assert (config.train.epochs, config.train.batch_size, config.seed) == (7, 16, 4)
    assert config.method["temperature"] == 0.5


@pytest.mark.parametrize("named", [{"flags": {"method.name": "bnm"}}, {"overrides": ["method.name=bnm"]}])
def test_another_method_leaves_out_the_switches_of_the_recipes_own(tmp_path: Path, named: dict[str, Any]) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("method: {name: pmtrans, preset: best, refresh_steps: 40, label_smoothing: 0.2}")
    assert load_config(recipe, **named).method["label_smoothing"] == 0.2  # that all methods have
    assert load_config(recipe, ["method.weight=2"], {"method.name": "bnm"}).method["weight"] == 2
    assert load_config(recipe, [], {"method.name": "pmtrans"}).method["refresh_steps"] == 40
    with pytest.raises(ConfigError, match=r"Unknown key .method\.refresh_steps."):
        load_config(recipe, ["method.refresh_steps=20"], {"method.name": "bnm"})


def test_what_is_written_reads_back_as_the_same_configuration(tmp_path: Path) -> None:
    config = load_config(None, ["method.preset=reference", "train.learning_rate=3e-5", "method.beta_start=[2,2]"])
    path = tmp_path / "config.yaml"
    path.write_text(config.to_yaml())
    assert load_config(path) == config
    assert yaml.safe_load(path.read_text())["method"]["pseudo_labels"] == "neighbours"


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [1", "!!python/object/apply:os.system ['echo hacked']"])
def test_a_recipe_that_is_no_recipe_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="Recipe"):
        load_config(path)


def test_every_recipe_in_the_repository_is_valid() -> None:
    folder = Path(__file__).parent.parent / "recipes"
    recipes = sorted(path for path in folder.rglob("*.yaml") if path.parent.name != "studies")  # tests/bench has those
    assert len(recipes) >= 10
    for recipe in recipes:
        load_config(recipe)


def test_a_recipe_of_the_package_is_found_by_its_name_and_a_file_of_that_name_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("office-31/deit", "recipes/office-31/deit.yaml"):
        assert load_config(Path(name)).train.epochs == 60
    with pytest.raises(ConfigError, match=r"'office-31/diet' is neither.*office-31/deit"):
        load_config(Path("office-31/diet"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "office-31").mkdir()
    (tmp_path / "office-31" / "deit").write_text("train: {epochs: 3}")
    assert load_config(Path("office-31/deit")).train.epochs == 3
