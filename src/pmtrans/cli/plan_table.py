"""The table that ``pmtrans train --dry-run`` prints."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pmtrans.errors import one_line
from pmtrans.training.dry_run.plan import Plan


def show_plan(plan: Plan) -> None:
    """Print memory and time to stdout; if the memory does not suffice, also what to change."""
    memory = plan.memory
    table = Table(title="Plan (nothing was trained, nothing was written)", show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    pairs = f"{plan.batch_size} pairs" + (f" x {plan.accumulate}" if plan.accumulate > 1 else "")
    rows = [
        ("model", f"{plan.backbone} at {plan.image_size} pixels"),
        ("parameters", f"{plan.parameters / 1e6:.2f} million, {plan.trainable / 1e6:.2f} million trained"),
        ("device", plan.device),
        ("batch", pairs),
        ("", ""),
        ("weights", amount(memory.weights)),
        ("gradients", amount(memory.gradients)),
        ("AdamW", amount(memory.optimiser)),
        ("activations and the rest of a step", amount(memory.rest)),
        *([("Python and libraries", amount(memory.program))] if memory.program else []),
        ("memory at the peak of a step", amount(memory.peak) + ("" if memory.measured else " (estimated)")),
        ("available memory", amount(memory.available)),
    ]
    if plan.times is not None:
        low, high = min(plan.times.steps), max(plan.times.steps)
        mean = sum(plan.times.steps) / len(plan.times.steps)
        epoch = plan.steps_per_epoch * mean
        rows += [
            ("", ""),
            ("a step", f"{duration(mean)} ({duration(low)} to {duration(high)})"),
            ("an epoch", f"{duration(epoch)} ({plan.steps_per_epoch} steps)"),
            ("an evaluation", f"{duration(plan.times.evaluation)} ({plan.evaluations} of them)"),
        ]
        rows.append(("the linear probe", duration(plan.times.probe)))
        if plan.source_seconds is not None:
            rows.append(("the source stage", duration(plan.source_seconds)))
        rows.append(("the whole run", f"{duration(plan.run_seconds or 0)} ({plan.steps} steps)"))
    for name, value in rows:
        table.add_row(Text(name), Text(one_line(value, 120)))
    console = Console(emoji=False)
    console.print(table)
    if plan.proposals:
        console.print(_proposals(plan))
    if not memory.fits:
        problem = f"It does not fit: {amount(memory.peak)} needed, {amount(memory.available)} available."
        console.print(f"{problem} Try {'; or '.join(plan.advice)}.", markup=False, highlight=False, soft_wrap=True)


def _proposals(plan: Plan) -> Table:
    """Settings with which less is needed; what fits into the available memory is marked."""
    table = Table(title="What a step needs with other settings (estimated from smaller batches)")
    table.add_column("settings")
    table.add_column("1 process", justify="right")
    table.add_column(f"each of {plan.processes}", justify="right")
    for proposal in plan.proposals:
        needs = [f"{amount(need.peak)}, {duration(need.seconds)}" for need in (proposal.alone, proposal.shared)]
        fits = [" fits" if fit else "" for fit in plan.fitting(proposal)]
        cells = [f"{need}{mark}" for need, mark in zip(needs, fits, strict=True)]
        table.add_row(Text("\n".join(proposal.settings)), *map(Text, cells), end_section=True)
    return table


def amount(size: int) -> str:
    """Bytes, readable: ``1.50 GB``."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def duration(seconds: float) -> str:
    """Seconds, readable: ``2.5 h``."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    for unit, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.1f} s"
