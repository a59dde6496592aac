from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, Field

from pmtrans.errors import ConfigError
from pmtrans.methods import METHODS
from pmtrans.settings import load_config
from pmtrans.settings_reference import (
    _settings,
    all_settings,
    as_markdown,
    find_settings,
    section_settings,
    section_titles,
)

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"


@pytest.mark.parametrize(
    ("name", "kind", "default", "limits"),
    [
        ("seed", "int", 0, ">= 0, <= 9223372036854775807"),
        ("data.crop_ratio", "float or null", 0.875, "> 0, <= 1"),
        ("data.holdout", "float", 0.1, ">= 0, < 0.9"),
        ("backbone.options", "mapping", {}, ""),
        ("train.learning_rate", "float", 5e-5, "> 0"),
        ("train.schedule", "one of: cosine, inverse, constant", "cosine", ""),
        ("train.loggers", "list of tensorboard, wandb, trackio", [], ""),
        ("train.baseline", "true or false", True, ""),
        ("pmtrans.beta_start", "list of 2 float", [1.0, 1.0], ""),
        ("method.ssrt.confidence", "float", 0.4, ">= 0, < 1"),
        ("source_only.head", "one of: linear, mlp, weight_norm, pair, mlp_pair", "linear", ""),
        ("ssrt.layers", "list of int or null", None, ""),
    ],
)
def test_type_default_and_range_are_those_of_the_code(name: str, kind: str, default: object, limits: str) -> None:
    (setting,) = find_settings(name)
    assert (setting.kind, setting.default, setting.range) == (kind, default, limits)


def test_every_setting_has_a_description() -> None:
    silent = [f"{setting.section}: {setting.key}" for setting in all_settings() if not setting.description.strip()]
    assert not silent, "give these a Field(description=...)"


def test_every_type_and_bound_is_put_into_words() -> None:
    assert not [setting for setting in all_settings() if "<class" in setting.kind or "typing" in setting.kind]
    for name, entry in METHODS.items():
        for key, field in entry.options.model_fields.items():
            (setting,) = find_settings(f"method.{name}.{key}")
            assert len(field.metadata) == len([part for part in setting.range.split(", ") if part]), setting


def test_every_section_and_method_is_there_with_its_keys() -> None:
    config = load_config()
    dumped = config.model_dump()
    keys = {f"{section}.{key}" for section in ("data", "backbone", "train", "selection") for key in dumped[section]}
    assert {setting.key for setting in section_settings()} == keys | {"seed"}
    for name in METHODS:
        options = load_config(None, [f"method.name={name}"]).method
        listed = {setting.key: setting.default for setting in all_settings() if setting.section == f"method.{name}"}
        assert listed == {f"method.{key}": value for key, value in options.items() if key != "name"}
        assert METHODS[name].method.title in section_titles()[f"method.{name}"]


def test_a_default_can_be_typed_as_it_is_shown() -> None:
    for setting in all_settings():
        method = setting.section.removeprefix("method.") if setting.section.startswith("method.") else "pmtrans"
        plain = load_config(None, [f"method.name={method}"])
        assert load_config(None, [f"method.name={method}", f"{setting.key}={setting.default_text}"]) == plain


def test_a_name_is_a_section_a_key_a_method_or_a_part_of_a_key() -> None:
    assert {setting.section for setting in find_settings("train")} == {"train"}
    assert len(find_settings("train")) == len(load_config().train.model_dump())
    assert [setting.key for setting in find_settings("train.clip")] == ["train.clip"]
    assert find_settings("pmtrans") == find_settings("method.pmtrans") == find_settings("PMTrans")
    assert {setting.section for setting in find_settings("dann")} == {"method.dann"}
    assert find_settings("source-only") == find_settings("source_only")
    assert [setting.kind for setting in find_settings("method")] == ["one of: " + ", ".join(METHODS)]
    assert {setting.key for setting in find_settings("smoothing")} == {"method.label_smoothing"}
    assert {setting.key for setting in find_settings("warmup")} == {"train.warmup_steps"}


def test_a_name_that_is_both_an_option_and_a_method_gives_both() -> None:
    found = {(setting.section, setting.key) for setting in find_settings("method.mcc")}
    assert {("method.pmtrans", "method.mcc"), ("method.mcc", "method.temperature")} <= found


@pytest.mark.parametrize(
    ("name", "meant"),
    [("trian", "train"), ("train.clp", "train.clip"), ("haed_ratio", "head_ratio"), ("pmtran5", "pmtrans")],
)
def test_an_unknown_name_gets_one_line_with_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find_settings(name)
    assert str(caught.value) == f"Unknown setting {name!r}. Did you mean {meant!r}?"


def test_a_name_like_no_other_gets_the_command_that_lists_all() -> None:
    with pytest.raises(ConfigError, match=r"^Unknown setting 'zzzz'\. `pmtrans settings` lists all\.$"):
        find_settings("zzzz")


def test_a_new_key_needs_no_word_elsewhere() -> None:
    class Options(BaseModel):
        depth: Literal[1, 2] | None = Field(None, description="how deep")
        rates: tuple[float, ...] = Field((0.5,), description="of each layer")

    depth, rates = _settings(Options, "method.mine", "method.")
    assert (depth.key, depth.kind, depth.default_text) == ("method.depth", "one of: 1, 2 or null", "null")
    assert (rates.kind, rates.default_text) == ("list of float", "[0.5]")


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == as_markdown(), (
        "the settings changed: python -m pmtrans.settings_reference > docs/settings.md"
    )


def test_the_page_has_every_key() -> None:
    page = as_markdown()
    for key in ("head_ratio", "weight_decay", "clip", "warmup_steps"):
        assert f"| `train.{key}` |" in page
    assert "| `data.crop_ratio` | float or null, > 0, <= 1 | `0.875` |" in page
    assert page.count("\n| `") == len(all_settings())
