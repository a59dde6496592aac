"""``pmtrans bench``: the paper's tables, ablations and figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pmtrans.cli.completion import complete_methods, complete_suite
from pmtrans.cli.engine_flags import Cpus, EngineName, Gpus, Parallel, Quiet, RayAddress
from pmtrans.cli.flags import Backbone, Recipe, Weights
from pmtrans.cli.verbs import Verbs


class _RunByDefault(TyperGroup):
    """``pmtrans bench office-31 ...`` is short for ``pmtrans bench run office-31 ...``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


bench = Verbs(
    name="bench",
    cls=_RunByDefault,
    no_args_is_help=True,
    help="All tasks of a benchmark, as the paper's tables: `pmtrans bench office-31 --data DIR --out DIR`.",
)


@bench.command()
def run(
    suite: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SUITE [section.key=value]...",
            autocompletion=complete_suite,
            help="`office-31`, `office-home`, `visda-2017` or `domainnet`; then any settings.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[Path, typer.Option(help="The benchmark's folder.", show_default=False)] = ...,  # type: ignore[assignment]
    out: Annotated[
        Path, typer.Option(help="Runs and tables. An interrupted suite is resumed.", show_default=False)
    ] = ...,  # type: ignore[assignment]
    methods: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated, with presets and options: `pmtrans:reference`, `pmtrans:beta=fixed(1,1)`. "
            "With `--ablation`: which of its variants. [default: source_only,pmtrans]",
            autocompletion=complete_methods,
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Comma-separated.")] = "0",
    tasks: Annotated[str | None, typer.Option(help="Such as `A2W,D2W`; default: all.", show_default=False)] = None,
    backbone: Backbone = None,
    weights: Weights = None,
    recipe: Recipe = None,
    ablation: Annotated[
        str | None,
        typer.Option(
            help="losses, beta, mixing, attention, class-information, batch-size, alpha or pseudo-labels.",
            show_default=False,
        ),
    ] = None,
    tune: Annotated[
        bool,
        typer.Option(
            "--tune",
            help="Try learning rate x strength for each method on one task (--tasks; A2D of Office-31, else the first) "
            "and write the settings chosen without target labels to OUT/tuned.yaml.",
        ),
    ] = False,
    tuned: Annotated[
        Path | None,
        typer.Option(
            help="The tuned.yaml of a tuning: methods have its settings, and all start from one source stage.",
            show_default=False,
        ),
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="`whole`, or DomainNet's `split`: adapt to the train list, evaluate on the test list.")
    ] = "whole",
    reference: Annotated[
        str, typer.Option(help="The method whose accuracy is subtracted from the others' in the paired differences.")
    ] = "source_only",
    parallel: Parallel = 1,
    engine: EngineName = "local",
    ray_address: RayAddress = None,
    cpus: Cpus = 1,
    gpus: Gpus = 0,
    figures: Annotated[bool, typer.Option("--figures", help="Draw the figures at the end, in OUT/figures.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run a benchmark; results.csv, table.md, table.csv and table.tex in OUT are updated after every run.

    Finished runs are skipped, failed runs are retried. Exit code 1: some runs failed.

    Example:

        pmtrans bench office-31 --data datasets/office31 --out runs/office-31 --seeds 0,1
    """
    from pmtrans.cli.early import require_data

    require_data("--data", data)
    from pmtrans.bench.ablations import ablation_named
    from pmtrans.bench.display import Display
    from pmtrans.bench.engines import create_engine
    from pmtrans.bench.entry import SharedSettings, parse_entries
    from pmtrans.bench.jobs import from_one_source_stage, open_suite, parse_seeds, plan_suite
    from pmtrans.bench.suite import Write, run_suite
    from pmtrans.bench.suite_files import write_records
    from pmtrans.bench.tuning import TuningFiles, plan_tuning, read_tuned, tuned_entries
    from pmtrans.cli.running import interruptible
    from pmtrans.config import settings_from_flags
    from pmtrans.errors import ConfigError, nearest, one_line

    overrides = list(suite or [])
    name = overrides.pop(0) if overrides and "=" not in overrides[0] else None
    study = ablation_named(ablation) if ablation else None
    if name is None and study is None:
        raise ConfigError("Name a suite (office-31, office-home, visda-2017, domainnet) or an --ablation.")
    if protocol not in ("whole", "split"):
        raise ConfigError(f"--protocol {protocol!r} is neither whole nor split.")
    if weights is not None and Path(weights).is_file():
        weights = str(Path(weights).resolve())  # the workers of a cluster have another working folder
    if (tune or tuned is not None) and (study is not None or protocol != "whole" or (tune and tuned is not None)):
        raise ConfigError("--tune and --tuned stand alone: without each other, --ablation and --protocol.")
    frozen = read_tuned(tuned) if tuned is not None else {}
    flags = settings_from_flags(backbone=backbone, weights=weights)
    compares = tune or tuned is not None
    settings = SharedSettings(recipe, tuple(overrides), flags, tuned=frozen, from_source=compares)
    wanted = [task for task in tasks.split(",") if task] if tasks else None
    write: Write = write_records
    if tune:
        tuning = plan_tuning(str(name), data, out, methods, parse_seeds(seeds), settings, wanted)
        planned, write = tuning.suite, TuningFiles(tuning)
    else:
        entries = study.choose(methods) if study else parse_entries(methods or "source_only,pmtrans")
        entries = tuned_entries(methods, frozen) if frozen else entries
        suite_name: str = name or study.suite  # type: ignore[union-attr]
        planned = plan_suite(
            suite_name, data, out, entries, parse_seeds(seeds), settings, wanted, study, protocol  # type: ignore[arg-type]
        )  # fmt: skip
        planned = from_one_source_stage(planned) if frozen else planned
        if reference not in (*planned.methods, "source_only"):
            near = nearest(reference, planned.methods)
            raise ConfigError(f"--reference {one_line(reference)!r} is not one of the methods.{near}")
        planned = replace(planned, reference=reference)
    open_suite(planned)
    display = Display(quiet)
    runner = create_engine(engine, display, parallel, ray_address, cpus, gpus)
    with interruptible(out):
        failed = run_suite(planned, runner, display, write)
    typer.echo((planned.out / "table.md").read_text(encoding="utf-8"), nl=False)
    if figures:
        from pmtrans.bench.paper_figures import draw_figures

        draw_figures([planned.out], planned.out / "figures", display.say, tasks=[job.task for job in planned.jobs])
    if failed:
        typer.echo(f"{failed} runs failed; the same command retries them.", err=True)
        raise typer.Exit(1)


@bench.command(name="figures")
def draw(
    more: Annotated[list[Path] | None, typer.Argument(metavar="[DIR]...", help="More suites.")] = None,
    runs: Annotated[
        list[Path] | None, typer.Option(help="Folder of a suite; repeat it, say per backbone.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the figures go.", show_default=False)] = ...,  # type: ignore[assignment]
    method: Annotated[str, typer.Option(help="The method whose features, losses and attention are drawn.")] = "pmtrans",
    tasks: Annotated[str | None, typer.Option(help="Such as `A2W,D2W`; default: all.", show_default=False)] = None,
) -> None:
    """Draw t-SNE, loss and accuracy curves, attention maps and mixed images from finished runs.

    Example:

        pmtrans bench figures --runs runs/swin --runs runs/deit --out figures
    """
    from pmtrans.bench.paper_figures import draw_figures
    from pmtrans.errors import ConfigError

    suites = [*(runs or []), *(more or [])]
    if not suites:
        raise ConfigError("Name the folders of one or more suites: --runs DIR.")
    draw_figures(suites, out, lambda text: typer.echo(text, err=True), method, tasks.split(",") if tasks else ())


@bench.command()
def complexity(
    out: Annotated[Path, typer.Option(help="Where the table and the plot go.", show_default=False)] = ...,  # type: ignore[assignment]
    repeats: Annotated[int, typer.Option(min=1, help="Measurements; the fastest counts.")] = 5,
) -> None:
    """Measure time and memory of the alignment, compared with cross-attention (the paper's appendix)."""
    from pmtrans.bench.complexity import measure, table, write_complexity

    measured = measure(repeats=repeats)
    typer.echo(table(measured), nl=False)
    for path in write_complexity(out, measured):
        typer.echo(path, err=True)
