"""What the shell offers after a tab: methods, recipes and settings, read without torch.

``pmtrans --install-completion`` installs it. The options of a method stand beside code that needs torch, so their names
are read from the source text of its file.
"""

from __future__ import annotations

import ast
from pathlib import Path

import typer

_METHODS = Path(__file__).parents[1] / "methods"
Values = tuple[str, ...]


def complete_method(incomplete: str) -> list[str]:
    from pmtrans.cli.early import method_names

    return [name for name in method_names() if name.startswith(incomplete)]


def complete_methods(incomplete: str) -> list[str]:
    """The last of a comma-separated list."""
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in complete_method(last)]


def complete_recipe(incomplete: str) -> list[str]:
    """Packaged recipes; where none fits, shells offer files."""
    from pmtrans.config.recipes import packaged_recipes

    return [name for name in packaged_recipes() if name.startswith(incomplete)]


def complete_setting(ctx: typer.Context, incomplete: str) -> list[str]:
    """``section.key=``, and behind the sign the values, where there are only a few."""
    before = [str(word) for word in ctx.params.get("overrides") or ctx.params.get("suite") or ()]
    options = option_values(ctx.params.get("method") or _method_in(before))
    settings = {**_section_values(), "method.name": tuple(complete_method("")), **options}
    if not incomplete and before and before[-1] in settings:  # bash parts a word at the sign, click drops a last one
        return list(settings[before[-1]])
    if before[-1:] == ["="]:
        return [value for value in settings.get(before[-2], ()) if value.startswith(incomplete)]
    key, sign, typed = incomplete.partition("=")
    if sign:
        return [f"{key}={value}" for value in settings.get(key, ()) if value.startswith(typed)]
    return [f"{name}=" for name in settings if name.startswith(incomplete)]


def complete_key(ctx: typer.Context, incomplete: str) -> list[str]:
    """For ``pmtrans settings``, which takes a key without a value."""
    return [setting.removesuffix("=") for setting in complete_setting(ctx, incomplete)]


def complete_suite(ctx: typer.Context, incomplete: str) -> list[str]:
    names = ("office-31", "office-home", "visda-2017", "domainnet")
    return [*(name for name in names if name.startswith(incomplete)), *complete_setting(ctx, incomplete)]


def _method_in(before: list[str]) -> str:
    """The method that the settings name so far."""
    _, named, after = " ".join(before).partition("method.name=")
    return after.split()[0] if named and after.split() else "pmtrans"


def _section_values() -> dict[str, Values]:
    from pmtrans.settings_reference import section_settings

    choices = {"true or false": ("true", "false")}
    return {
        setting.key: choices.get(setting.kind, _listed(setting.kind) if setting.kind.startswith("one of: ") else ())
        for setting in section_settings()
    }


def _listed(kind: str) -> Values:
    return tuple(kind.removeprefix("one of: ").split(", "))


def option_values(method: str) -> dict[str, Values]:
    """The options of a method as ``method.KEY``, with the values of those that the code writes out."""
    for stem in (f"{method}_options", method):
        file = _METHODS / f"{stem}.py"
        if method.isidentifier() and file.is_file():
            tree = ast.parse(file.read_text(encoding="utf-8"))
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and node.name.endswith("Options"):
                    return {f"method.{name}": values for name, values in _fields(node, tree).items()}
    return {}


def _fields(options: ast.ClassDef, tree: ast.Module) -> dict[str, Values]:
    """Those of the class, after those of the class that it extends, wherever that is imported from."""
    found: dict[str, Values] = {}
    for base in (node.id for node in options.bases if isinstance(node, ast.Name)):
        parent, place = _imported(base, tree)
        found |= _fields(parent, place) if isinstance(parent, ast.ClassDef) else {}
    for node in options.body:
        is_class_variable = isinstance(node, ast.AnnAssign) and "ClassVar" in ast.unparse(node.annotation)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not is_class_variable:
            found[node.target.id] = _written_out(node.annotation, tree)
    return found


def _written_out(annotation: ast.expr, tree: ast.Module) -> Values:
    """The values of ``Literal[...]``, also by its name, and of ``bool``."""
    if isinstance(annotation, ast.Name) and annotation.id == "bool":
        return ("true", "false")
    if isinstance(annotation, ast.Name):
        meant, _ = _imported(annotation.id, tree)
        annotation = meant.value if isinstance(meant, ast.Assign) else annotation
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name):
        inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        if annotation.value.id == "Literal" and all(isinstance(node, ast.Constant) for node in inner):
            return tuple(str(ast.literal_eval(node)) for node in inner)
    return ()


def _imported(name: str, tree: ast.Module) -> tuple[ast.stmt | None, ast.Module]:
    """What a module of ours defines or assigns under a name, and the module."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node, tree
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return node, tree
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            parts = (node.module or "").split(".")
            file = Path(__file__).parents[2].joinpath(*parts).with_suffix(".py")
            if parts[0] == "pmtrans" and file.is_file():
                return _imported(name, ast.parse(file.read_text(encoding="utf-8")))
    return None, tree
