"""A part that was written but not entered in its table can be used by nobody: each file must be found in its table."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import pmtrans.backbones
import pmtrans.cli
import pmtrans.data.reading
import pmtrans.losses.precision
import pmtrans.methods
import pmtrans.mixing
import pmtrans.report.sections as report_sections
import pmtrans.selection.validators
from pmtrans.backbones.backbone import Backbone
from pmtrans.backbones.create import FAMILIES, create_backbone
from pmtrans.cli import app
from pmtrans.config import Config
from pmtrans.data.reading.layouts import LAYOUTS
from pmtrans.methods import METHODS
from pmtrans.methods.method import Method
from pmtrans.mixing import MIXINGS
from pmtrans.mixing.mixing import Mixing
from pmtrans.report.sections import SECTIONS
from pmtrans.selection.validators import VALIDATORS
from tiny_data import TINY

TESTS = Path(__file__).parent


def modules(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(found.name)


def written(package: ModuleType, kind: type) -> set[type]:
    """All classes of a kind that the files of a package define, but for those that cannot be made."""
    return {
        value
        for module in modules(package)
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, kind) and value.__module__ == module.__name__
        if not inspect.isabstract(value)
    }


@pytest.mark.parametrize(
    ("package", "kind", "entered"),
    [
        (pmtrans.methods, Method, {entry.method for entry in METHODS.values()}),
        (pmtrans.mixing, Mixing, set(MIXINGS.values())),
        (pmtrans.backbones, Backbone, set(FAMILIES)),
    ],
    ids=["methods", "mixings", "backbone families"],
)
def test_every_class_of_a_kind_is_in_its_table(package: ModuleType, kind: type, entered: set[type]) -> None:
    assert written(package, kind) == entered


def test_every_family_of_backbones_has_a_tiny_model_for_the_tests() -> None:
    assert {type(create_backbone(name, "none", size, options)) for name, options, size in TINY.values()} == {*FAMILIES}


def files(functions: Iterable[object]) -> set[str]:
    return {Path(inspect.getsourcefile(function) or "").stem for function in functions}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("package", "functions"),
    [
        (pmtrans.selection.validators, [validator.function for validator in VALIDATORS.values()]),
        (report_sections, SECTIONS),
    ],
    ids=["validators", "sections"],
)
def test_every_validator_and_every_section_of_the_report_is_in_its_table(
    package: ModuleType, functions: Iterable[object]
) -> None:
    assert {module.__name__.rpartition(".")[2] for module in modules(package)} == files(functions)


def test_every_reader_of_a_layout_is_in_the_table() -> None:
    readers = {
        name
        for module in modules(pmtrans.data.reading)
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
        if str(inspect.signature(value).return_annotation) in ("list[Row]", "Listing") and name.startswith("read_")
    }
    assert readers >= {"read_folder", "read_list", "read_table", "read_huggingface_dataset"}
    entered = {name for layout in LAYOUTS for name in (*layout.read.__code__.co_names, layout.read.__name__)}
    assert readers - entered == set()


def test_every_suffix_of_a_layout_is_on_the_page_about_data() -> None:
    page = (TESTS.parent / "docs" / "data.md").read_text(encoding="utf-8")
    for layout in LAYOUTS:
        assert not layout.suffixes or any(f"{suffix}`" in page or f"{suffix} " in page for suffix in layout.suffixes)


@pytest.mark.parametrize(
    ("package", "folder"),
    [
        (pmtrans.losses, "losses"),
        (pmtrans.methods, "methods"),
        (pmtrans.mixing, "mixing"),
    ],
    ids=["losses", "methods", "mixings"],
)
def test_every_formula_is_compared_with_one_written_in_a_test(package: ModuleType, folder: str) -> None:
    """A test names something of each file, or the file's name where it is the key of a table."""
    own = [path.read_text(encoding="utf-8") for path in (TESTS / folder).glob("*.py")]
    text = "\n".join([*own, *(path.read_text(encoding="utf-8") for path in (TESTS / "methods").glob("*.py"))])
    for module in modules(package):
        if module is pmtrans.losses.precision or hasattr(module, "__path__"):  # no formula; a room of its own
            continue
        stem = module.__name__.rpartition(".")[2]
        public = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        named = any(re.search(rf"\b{name}\b", text) for name in public if not name.startswith("_"))
        assert named or f'"{stem}"' in text, module.__name__


def test_every_validator_is_compared_with_its_formula() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (TESTS / "selection").glob("*.py"))
    for module in modules(pmtrans.selection.validators):
        assert f"from {module.__name__} import" in text


def test_every_verb_is_on_the_command_line() -> None:
    verbs = {command.callback.__name__ for command in app.registered_commands if command.callback is not None}
    groups = {group.typer_instance.info.name for group in app.registered_groups if group.typer_instance}
    own = {
        module.__name__.rpartition(".")[2]
        for module in modules(pmtrans.cli)
        if hasattr(module, module.__name__.rpartition(".")[2])
    }
    assert own == verbs | groups


def test_every_setting_says_what_it_does() -> None:
    for section, field in Config.model_fields.items():
        inner = getattr(field.annotation, "model_fields", {})
        assert all(setting.description for setting in inner.values()), section
