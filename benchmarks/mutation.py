"""Mutation testing of the mathematics: does a test fail when an operator, a number or a condition is changed?

    pip install -e '.[test,mutation]'
    OMP_NUM_THREADS=1 python benchmarks/mutation.py                        # all four packages
    OMP_NUM_THREADS=1 python benchmarks/mutation.py --package mixing --survivors

The mutants are those of cosmic-ray (``OPERATORS``: one replacement of each arithmetic operator, the boundary and the
opposite of each comparison, all other operators of its core). Importing torch takes seconds, so everything is imported
once: each mutant is put into a fork of this process, which runs the tests that enter the mutated function, the
fastest first, until one fails. A mutant in annotations or docstrings, or one that does not compile, is not counted.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import signal
import sys
import tempfile
import time
import types
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import coverage
import pytest
from _pytest.runner import runtestprotocol
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = REPOSITORY / "src" / "pmtrans"
PACKAGES = ("losses", "mixing", "pseudo_labels", "selection")
SLOW = 6.0  # seconds: a test that takes longer (a whole training) is not asked about mutants
LIMIT = 10.0  # seconds beyond the time that the tests take without a mutant

_BINARY = {"Add": "Sub", "Sub": "Add", "Mul": "Div", "Div": "Mul", "FloorDiv": "Div", "Mod": "Mul", "Pow": "Mul"}
_BINARY |= {"BitOr": "BitAnd", "BitAnd": "BitOr", "BitXor": "BitAnd", "LShift": "RShift", "RShift": "LShift"}
_COMPARISON = {"Eq": ["NotEq"], "NotEq": ["Eq"], "Is": ["IsNot"], "IsNot": ["Is"]}
_COMPARISON |= {"Lt": ["LtE", "GtE"], "LtE": ["Lt", "Gt"], "Gt": ["GtE", "LtE"], "GtE": ["Gt", "Lt"]}
_UNARY = ["Delete_USub", "Delete_Invert", "Delete_Not"]  # taken away
OPERATORS = [
    *(f"core/ReplaceBinaryOperator_{old}_{new}" for old, new in _BINARY.items()),
    *(f"core/ReplaceComparisonOperator_{old}_{new}" for old, news in _COMPARISON.items() for new in news),
    *(f"core/ReplaceUnaryOperator_{change}" for change in _UNARY),
    *("core/NumberReplacer", "core/AddNot", "core/RemoveDecorator", "core/ZeroIterationForLoop"),
    *("core/ReplaceTrueWithFalse", "core/ReplaceFalseWithTrue", "core/ReplaceOrWithAnd", "core/ReplaceAndWithOr"),
    *("core/ReplaceBreakWithContinue", "core/ReplaceContinueWithBreak", "core/ExceptionReplacer"),
]


@dataclass
class Mutant:
    """One change of one file; ``outcome`` is killed, survived or timeout (which counts as killed)."""

    package: str
    file: str
    line: int
    operator: str
    before: str
    after: str
    outcome: str = ""
    by: str = ""


def mutants_of(path: Path) -> Iterator[tuple[Mutant, str]]:
    """Every mutant of a file with its whole source."""
    source = path.read_text(encoding="utf-8")
    plain, nodes = _executed(source), list(ast_nodes(get_ast(source)))
    seen = set()
    for name in OPERATORS:
        operator = get_operator(name)()
        for occurrence in range(sum(1 for node in nodes for _ in operator.mutation_positions(node))):
            mutated = mutate_code(source, operator, occurrence)
            try:
                if mutated is None or mutated in seen or _executed(mutated) == plain:
                    continue
            except SyntaxError:
                continue
            seen.add(mutated)
            line, before, after = _difference(source, mutated)
            place = path.relative_to(SOURCE)
            yield Mutant(place.parts[0], place.as_posix(), line, name.split("/")[1], before, after), mutated


def _executed(source: str) -> str:
    """The syntax tree without annotations, docstrings and the star of a signature: none of them is ever run."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.arguments):
            node.args, node.defaults = [*node.posonlyargs, *node.args, *node.kwonlyargs], _defaults(node)
            node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(None)
    return ast.dump(tree)


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *(one for one in arguments.kw_defaults if one is not None)]


def _difference(source: str, mutated: str) -> tuple[int, str, str]:
    old, new = source.splitlines(), mutated.splitlines()
    for number, (before, after) in enumerate(zip(old, new, strict=False), start=1):
        if before != after:
            return number, before.strip(), after.strip()
    return len(old), "", ""


def enclosing(source: str, line: int) -> range | None:
    """The lines of the outermost function or method around a line; None where it belongs to no function."""
    for node in ast.walk(ast.parse(source)):  # breadth first: the outermost comes first
        if isinstance(node, ast.FunctionDef):
            first = min([node.body[0].lineno, *(child.lineno for child in node.args.args)])
            if first <= line <= (node.end_lineno or line) and node.body[0].lineno <= line:
                return range(node.body[0].lineno, (node.end_lineno or line) + 1)
    return None


class Live:
    """The functions of a module wherever they are held, so that a mutant reaches importers, registries, subclasses."""

    def __init__(self) -> None:
        self.functions: dict[str, list[types.FunctionType]] = {}
        # not after gc.freeze, which hides what it froze
        for found in gc.get_objects():
            if isinstance(found, types.FunctionType) and found.__code__.co_filename.startswith(str(SOURCE)):
                self.functions.setdefault(found.__code__.co_filename, []).append(found)

    def put(self, module: types.ModuleType, source: str, mutated: str) -> None:
        """Change the running module to what the mutated source says."""
        path = str(module.__file__)
        code = compile(mutated, path, "exec")
        scratch = dict(vars(module))
        exec(code, scratch)
        codes = {(one.co_name, one.co_firstlineno): one for one in _nested(code)}
        made = {(one.__code__.co_name, one.__code__.co_firstlineno): one for one in _functions(scratch.values(), path)}
        for function in self.functions.get(path, []):
            key = (function.__code__.co_name, function.__code__.co_firstlineno)
            if key in codes and len(codes[key].co_freevars) == len(function.__code__.co_freevars):
                function.__code__ = codes[key]
            if key in made:
                function.__defaults__, function.__kwdefaults__ = made[key].__defaults__, made[key].__kwdefaults__
        unwrapped = mutated.count("\n@") + mutated.count("\n    @") < source.count("\n@") + source.count("\n    @")
        for name, new in scratch.items():
            old = vars(module).get(name)
            if old is new or name.startswith("__"):
                continue
            if isinstance(old, type) and isinstance(new, type):
                if unwrapped and "__dataclass_fields__" in vars(old) and "__dataclass_fields__" not in vars(new):
                    _rebind(name, old, new)
                else:
                    _change_class(old, new, unwrapped)
            elif not isinstance(old, types.FunctionType) or unwrapped:
                _rebind(name, old, new)


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _functions(values: Any, path: str) -> Iterator[types.FunctionType]:
    for value in list(values):
        value = getattr(value, "fget", None) or getattr(value, "__func__", value)
        while hasattr(value, "__wrapped__"):
            value = value.__wrapped__
        if isinstance(value, types.FunctionType) and value.__code__.co_filename == path:
            yield value
        elif isinstance(value, type):
            yield from (one for one in _functions(vars(value).values(), path))


def _change_class(old: type, new: type, unwrapped: bool) -> None:
    simple = (int, float, str, tuple, type(None))
    for name, value in vars(new).items():
        present = vars(old).get(name)
        bare = type(value) is not type(present) or hasattr(value, "__wrapped__") != hasattr(present, "__wrapped__")
        changed = (isinstance(value, simple) and value != present) or (unwrapped and bare)
        if changed and not name.startswith("__"):
            setattr(old, name, value)
    fields, news = getattr(old, "__dataclass_fields__", {}), getattr(new, "__dataclass_fields__", {})
    if any(repr(fields[name].default) != repr(news[name].default) for name in fields if name in news):
        old.__init__ = new.__init__  # type: ignore[misc]
    if "__dataclass_params__" in vars(new) and old.__dataclass_params__.frozen != new.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        old.__setattr__ = object.__setattr__  # type: ignore[method-assign, assignment]


def _rebind(name: str, old: Any, new: Any) -> None:
    """In every module that took the old object by this name."""
    for module in list(sys.modules.values()):
        home = str(getattr(module, "__file__", "") or "")
        if home.startswith(str(REPOSITORY)) and vars(module).get(name) is old:
            setattr(module, name, new)


class Runner:
    """A plugin that, in place of pytest's own loop, runs the collected tests on every mutant."""

    def __init__(self, packages: tuple[str, ...], files: tuple[str, ...], out: Path | None) -> None:
        self.packages, self.files, self.out = packages, files, out
        self.results: list[Mutant] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Failed("the tests cannot be collected")
        tests = {item.nodeid: item for item in session.items}
        gc.collect()
        live = Live()
        gc.freeze()  # a fork copies no page for the sake of the collector
        times, entered = self.measure(tests)
        for package in self.packages:
            for path in sorted((SOURCE / package).rglob("*.py")):
                if self.files and path.stem not in self.files:
                    continue
                for mutant, mutated in mutants_of(path):
                    self.judge(mutant, mutated, path, tests, times, entered.get(str(path), {}), live)
        return True

    def measure(self, tests: dict[str, pytest.Item]) -> tuple[dict[str, float], dict[str, dict[str, set[int]]]]:
        """Without a mutant: the seconds of each test, and by file the lines that each test runs."""
        with tempfile.TemporaryDirectory() as folder:
            answer = Path(folder) / "answer.json"

            def all_tests() -> bool:
                times, fine = {}, True
                tracer = coverage.Coverage(data_file=None, include=[f"{SOURCE / one}/*" for one in PACKAGES])
                with tracer.collect():
                    for name, item in tests.items():
                        tracer.switch_context(name)
                        begun = time.perf_counter()
                        passed = _passes(item)
                        times[name] = time.perf_counter() - begun
                        fine = fine and passed
                        if not passed:
                            print("fails without a mutant:", name, file=sys.__stderr__)
                data = tracer.get_data()
                lines: dict[str, dict[str, list[int]]] = {}
                for path in data.measured_files():
                    for line, contexts in data.contexts_by_lineno(path).items():
                        for context in contexts:
                            if context:
                                lines.setdefault(path, {}).setdefault(context, []).append(line)
                answer.write_text(json.dumps([times, lines]))
                return fine

            outcome = in_fork(all_tests, limit=1800)
            if outcome != "survived":
                raise SystemExit(f"The tests do not pass without a mutant ({outcome}).")
            times, lines = json.loads(answer.read_text())
        entered = {path: {test: set(those) for test, those in of.items()} for path, of in lines.items()}
        return times, entered

    def judge(
        self,
        mutant: Mutant,
        mutated: str,
        path: Path,
        tests: dict[str, pytest.Item],
        times: dict[str, float],
        entered: dict[str, set[int]],
        live: Live,
    ) -> None:
        source = path.read_text(encoding="utf-8")
        around = enclosing(source, mutant.line)
        chosen = [test for test, lines in entered.items() if around is None or not lines.isdisjoint(around)]
        chosen = sorted((test for test in chosen if times[test] <= SLOW), key=lambda test: times[test])
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        module = sys.modules[".".join(parts).removesuffix(".__init__")]

        def tried() -> bool:
            live.put(module, source, mutated)
            return all(_passes(tests[test]) for test in chosen)

        mutant.outcome = in_fork(tried, LIMIT + 3 * sum(times[test] for test in chosen)) if chosen else "survived"
        mutant.by = f"{len(chosen)} tests"
        self.results.append(mutant)
        if self.out is not None:
            with self.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(mutant)) + "\n")


def _passes(item: pytest.Item) -> bool:
    return all(report.passed or report.skipped for report in runtestprotocol(item, log=False, nextitem=None))


def in_fork(work: Any, limit: float) -> str:
    """``survived`` if the work says true, ``killed`` if not or if it raises, ``timeout``."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(max(1, int(limit)))
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            if limit < 1000:
                os.dup2(quiet, 2)
            code = 0 if work() else 1
        except BaseException:
            code = 1
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "timeout" if os.WTERMSIG(status) == signal.SIGALRM else "killed"
    return "killed" if os.WEXITSTATUS(status) else "survived"


def table(results: list[Mutant]) -> str:
    """Score of each package."""
    lines = [f"{'package':15}{'mutants':>9}{'killed':>9}{'survived':>10}{'score':>9}"]
    for package in (*PACKAGES, "all"):
        of = [one for one in results if package in (one.package, "all")]
        if of:
            survived = sum(one.outcome == "survived" for one in of)
            score = 1 - survived / len(of)
            lines.append(f"{package:15}{len(of):9}{len(of) - survived:9}{survived:10}{score:9.1%}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", action="append", choices=PACKAGES, help="only this one; may be repeated")
    parser.add_argument("--file", action="append", default=[], help="only files of this name, without .py")
    parser.add_argument("--survivors", action="store_true", help="print every mutant that no test noticed")
    parser.add_argument("--out", type=Path, help="write every mutant and its outcome there, a line of JSON each")
    given = parser.parse_args()
    packages = tuple(given.package or PACKAGES)
    os.environ["CI"] = "1"  # hypothesis: the same examples for every mutant
    runner = Runner(packages, tuple(given.file), given.out)
    folders = [str(REPOSITORY / "tests" / package) for package in packages]
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory() as scratch:
        code = pytest.main([*folders, "-q", "-s", "--no-header", f"--basetemp={scratch}/tests"], [runner])
    if not runner.results:
        raise SystemExit(int(code) or "No mutant was tried.")
    if given.survivors:
        for one in runner.results:
            if one.outcome == "survived":
                print(f"{one.file}:{one.line} {one.operator} ({one.by})\n  - {one.before}\n  + {one.after}")
    print(table(runner.results))


if __name__ == "__main__":
    main()
