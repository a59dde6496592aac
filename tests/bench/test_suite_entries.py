"""What ``--methods`` and ``--ablation`` mean, in configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from pmtrans.bench.ablations import ABLATIONS, ablation_named
from pmtrans.bench.entry import Entry, SharedSettings, parse_entries
from pmtrans.bench.paper import table
from pmtrans.bench.source_stages import source_key
from pmtrans.errors import ConfigError
from pmtrans.methods import METHODS

RECIPE = "method: {name: pmtrans, preset: paper, temperature: 0.25, head: mlp}\ntrain: {epochs: 3}\n"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE)
    return path


def test_entries_are_parted_by_commas_outside_brackets() -> None:
    assert parse_entries("source_only, pmtrans:reference,pmtrans:beta=fixed(1,1):train.clip=1") == [
        Entry("source_only"),
        Entry("pmtrans", "reference"),
        Entry("pmtrans", None, ("beta=fixed(1,1)", "train.clip=1")),
    ]


def test_two_presets_are_refused() -> None:
    with pytest.raises(ConfigError, match="names two presets"):
        parse_entries("pmtrans:paper:reference")


def test_switches_reach_the_method_and_the_sections(recipe: Path) -> None:
    config = SharedSettings(recipe).configure(parse_entries("pmtrans:beta=fixed(2,3):train.clip=1")[0])
    assert config.method["beta"] == "fixed"
    assert tuple(config.method["beta_start"]) == (2.0, 3.0)
    assert config.train.clip == 1
    assert (config.method["temperature"], config.train.epochs) == (0.25, 3)


def test_another_preset_starts_from_its_own_values_and_another_method_takes_over_the_head(recipe: Path) -> None:
    settings = SharedSettings(recipe)
    assert settings.configure(Entry("pmtrans")).method["temperature"] == 0.25
    assert settings.configure(Entry("pmtrans", "reference")).method["temperature"] == 1.0
    assert settings.configure(Entry("source_only")).method == {
        "name": "source_only", "head": "mlp", "label_smoothing": 0.1,
    }  # fmt: skip


def test_an_override_of_a_method_goes_to_the_methods_that_have_it() -> None:
    settings = SharedSettings(None, ("method.temperature=0.5",))
    assert settings.configure(Entry("pmtrans")).method["temperature"] == 0.5
    assert "temperature" not in settings.configure(Entry("source_only")).method
    with pytest.raises(ConfigError, match=r"Unknown key 'method.temperature'"):
        settings.check([Entry("source_only")])
    with pytest.raises(ConfigError, match=r"Key 'method.warmup' is gone"):
        SharedSettings(None, ("method.warmup=0.5",)).check([Entry("pmtrans"), Entry("cdan")])
    with pytest.raises(ConfigError, match=r"Key 'method.warmup' is gone"):
        SharedSettings().configure(parse_entries("cdan:warmup=0.25")[0])


def test_what_differs_between_runs_cannot_be_overridden() -> None:
    with pytest.raises(ConfigError, match="'seed' differs between the runs of a suite: use --seeds"):
        SharedSettings(None, ("seed=3",))


def test_names_of_one_configuration_become_one(recipe: Path) -> None:
    settings = SharedSettings(recipe)
    for text in ("pmtrans", "pmtrans:paper", "pmtrans:mixing=patchmix", "pmtrans:paper:beta=ascend:alpha=learned"):
        assert settings.canonical(parse_entries(text)[0]) == Entry("pmtrans")
    assert settings.canonical(parse_entries("pmtrans:paper:mixing=mixup:beta=ascend")[0]).name == "pmtrans:mixing=mixup"


@pytest.mark.parametrize("name", [name for name, ablation in ABLATIONS.items() if ablation.paper])
def test_the_variants_of_an_ablation_are_the_rows_of_the_paper(name: str) -> None:
    assert set(ABLATIONS[name].variants) == {row.variant for row in table(name).rows}


@pytest.mark.parametrize("name", list(ABLATIONS))
def test_the_variants_of_an_ablation_are_all_different_and_one_is_the_default(name: str) -> None:
    settings = SharedSettings()
    entries = [settings.canonical(entry) for entry in ABLATIONS[name].variants.values()]
    assert len({settings.configure(entry).to_yaml() for entry in entries}) == len(entries)
    assert Entry("pmtrans") in entries


def test_variants_of_an_ablation_can_be_chosen() -> None:
    assert ablation_named("beta").choose("beta-2-2,learned") == [
        Entry("pmtrans", None, ("beta=fixed(2,2)",)),
        Entry("pmtrans", None, ("beta=ascend",)),
    ]
    with pytest.raises(ConfigError, match="has no variant 'Beta"):
        ablation_named("beta").choose("Beta(3,3)")
    with pytest.raises(ConfigError, match="Did you mean 'losses'"):
        ablation_named("loses")


def test_all_methods_of_a_comparison_have_one_label_smoothing_and_one_source_stage() -> None:
    shared = SharedSettings(None, (), {})
    configs = [shared.configure(Entry(name)) for name in METHODS]
    assert {config.method["label_smoothing"] for config in configs} == {0.1}
    assert len({source_key(config) for config in configs}) == 1
    given = SharedSettings(None, ("method.label_smoothing=0.2",), {})
    assert {given.configure(Entry(name)).method["label_smoothing"] for name in ("mcc", "dann")} == {0.2}


def test_methods_start_at_the_end_of_the_source_stage_unless_something_else_is_given(recipe: Path) -> None:
    entry = Entry("pmtrans")
    assert SharedSettings(recipe).configure(entry).train.start == "source"
    assert SharedSettings(recipe, ("train.start=probe",)).configure(entry).train.start == "probe"
    assert SharedSettings(recipe).configure(Entry("pmtrans", None, ("train.start=average",))).train.start == "average"
    recipe.write_text(RECIPE.replace("epochs: 3", "epochs: 3, start: pretrained"))
    assert SharedSettings(recipe).configure(entry).train.start == "pretrained"  # the paper's protocol
    assert SharedSettings(recipe, from_source=True).configure(entry).train.start == "source"  # --tune and --tuned
