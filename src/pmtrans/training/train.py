"""From a configuration to a finished run folder: data, model, baseline, adaptation, summary."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from pmtrans.config import Config
from pmtrans.data.cache import open_cache
from pmtrans.data.domains import Data, read_data
from pmtrans.errors import one_line
from pmtrans.evaluation.passes import run_pass
from pmtrans.files import write_atomically, write_json
from pmtrans.processes.group import joined
from pmtrans.progress import Reporter
from pmtrans.run.folder import RunFolder, claim
from pmtrans.run.provenance import environment, fingerprint
from pmtrans.run.summary import Summary, read_summary
from pmtrans.selection.estimate import estimate_accuracy
from pmtrans.selection.evidence import Evidence, read_evidence, write_evidence
from pmtrans.selection.verdict import verdict
from pmtrans.signals import stop_on_signals
from pmtrans.training.build import build
from pmtrans.training.failures import explained_faults, explained_memory
from pmtrans.training.records import refuse_missing
from pmtrans.training.resume import Opened, open_run
from pmtrans.training.stage import Session, Trained, adopt_finished, train_stage


def train(
    config: Config,
    out: Path,
    reporter: Reporter,
    overwrite: bool = False,
    resume: str = "auto",
    baseline: Path | None = None,
) -> Summary:
    """Train, or resume, the run in ``out``; ``resume``: ``auto``, ``never``, or a run or checkpoint elsewhere.

    ``baseline``: a finished source-only training of just these settings, taken over instead of done again.
    """
    refuse_missing(config.train.loggers)
    with joined() as processes:
        reporter = reporter if processes.is_main else Reporter(quiet=True)
        cache = processes.together(lambda: open_cache(config.data.cache, reporter.warn))
        data = replace(processes.on_main(lambda: read_data(config, reporter)), cache=cache)
        folder = RunFolder(out)
        with ExitStack() as held:
            stop = held.enter_context(stop_on_signals())
            held.enter_context(explained_faults(folder))
            held.enter_context(explained_memory(config, folder))

            def open_folder() -> Opened:
                held.enter_context(claim(folder, overwrite))
                return _open(folder, config, data, resume, baseline)

            if processes.on_main(open_folder) is Opened.FINISHED:
                reporter.note(f"Run {one_line(out)} is finished already.")
                return processes.on_main(lambda: read_summary(folder.summary))
            return _train_stages(config, folder, Session(data, reporter, stop, processes))


def _open(folder: RunFolder, config: Config, data: Data, resume: str, baseline: Path | None) -> Opened:
    """The claimed folder, ready for the first stage that is not finished."""
    state = open_run(folder, config, fingerprint(data.source, data.target.domain), resume)
    if state is not Opened.FINISHED:
        write_json(folder.classes, list(data.source.classes))
    if state is Opened.NEW:
        write_json(folder.environment, environment())
    if baseline is not None and state is not Opened.FINISHED:
        adopt_finished(RunFolder(baseline), folder.baseline)
    return state


def _train_stages(config: Config, folder: RunFolder, session: Session) -> Summary:
    begin = time.monotonic()
    name = config.method["name"]

    # source-only, to compare with
    baseline = None
    if config.train.baseline and name != "source_only":
        source_only = config.model_copy(update={"method": baseline_switches(config)})
        baseline = train_stage("source only", source_only, folder.baseline, session)
    witness = None
    if baseline is not None and baseline.evidence is not None:
        witness = _witness(config, folder, session.data, baseline.evidence)

    # the method
    adapted = train_stage(name, config, folder.path, session, witness)

    # what the run says of itself
    summary = session.processes.on_main(lambda: _conclude(name, folder, baseline, adapted, witness))
    session.reporter.note(f"Finished in {time.monotonic() - begin:.0f} s: {one_line(folder.path)}")
    return summary


def _conclude(
    name: str, folder: RunFolder, baseline: Trained | None, adapted: Trained | None, witness: Evidence | None
) -> Summary:
    assert adapted is not None, "the main process has what was trained"
    summary = _summarise(name, baseline, adapted, witness)
    write_json(folder.summary, summary.to_json())
    return summary


def _witness(config: Config, folder: RunFolder, data: Data, baseline: Evidence) -> Evidence:
    """The baseline's predictions on neutral ground: the features of the backbone before anything was trained.

    The baseline's own features would side with it: training bent them to its own labels.
    """
    path = folder.witness
    if not path.is_file():
        _, task, trained = build(config, data, Reporter(quiet=True))
        model, size = trained.model.to("cuda" if torch.cuda.is_available() else "cpu"), 2 * task.batch_size
        holdout, target = (
            run_pass(model, domain.paths, task.preprocessing, size, config.data.workers, cache=task.cache)
            for domain in (task.holdout, task.target)
        )
        witness = replace(
            baseline,
            source_features_ND=holdout.features_MF.float().cpu(),
            target_features_MD=target.features_MF.float().cpu(),
            source_train_features_PD=None,
        )
        write_atomically(path, lambda temporary: write_evidence(temporary, witness))
    return read_evidence(path)


def _summarise(name: str, baseline: Trained | None, adapted: Trained, witness: Evidence | None) -> Summary:
    only = adapted if name == "source_only" else baseline
    oracle = [e["oracle_accuracy"] for e in adapted.evaluations if e.get("oracle_accuracy") is not None]
    estimate = judged = None
    if adapted.evidence is not None:
        estimate = estimate_accuracy(adapted.evidence, witness)
        judged = verdict(witness, adapted.evidence) if witness else None
    return Summary(
        method=name,
        source_only=only.accuracy if only else None,
        adapted=adapted.accuracy,
        last=oracle[-1] if oracle else None,
        oracle=max(oracle) if oracle else None,
        seconds=round(adapted.seconds + (baseline.seconds if baseline else 0.0), 3),
        selected_step=adapted.step,
        selection=adapted.explanation,
        estimate=None if estimate is None else asdict(estimate),
        verdict=judged.name if judged else None,
        verdict_reason=judged.reason if judged else None,
        evaluations={
            "adapted": next(e for e in adapted.evaluations if e["step"] == adapted.step),
            "source_only": only.evaluations[-1] if only else None,
        },
    )


def baseline_switches(config: Config) -> dict[str, Any]:
    """The method section of the source-only training beside a run of ``config``."""
    shared: dict[str, Any] = {
        name: config.method[name] for name in ("head", "label_smoothing") if name in config.method
    }
    return {"name": "source_only", **shared}
