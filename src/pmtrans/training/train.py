"""From a configuration to a finished run folder: probe, source stage, adaptation, conclusion."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pmtrans.config import Config, with_absolute_paths
from pmtrans.data.cache import open_cache
from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.data.domains import Data, read_data
from pmtrans.data.given import GivenModel
from pmtrans.data.reading.read import Target
from pmtrans.data.reading.target_labels import TargetLabels
from pmtrans.data.sampling import count_steps
from pmtrans.data.transforms import Preprocessing
from pmtrans.errors import ConfigError, one_line
from pmtrans.files import write_json
from pmtrans.machine import choose_device, has_mps
from pmtrans.methods import METHODS
from pmtrans.processes.group import Processes, joined
from pmtrans.progress import Reporter
from pmtrans.run.folder import RunFolder, claim
from pmtrans.run.provenance import environment, fingerprint
from pmtrans.run.summary import Summary, read_summary
from pmtrans.selection.validators.source_accuracy import source_accuracy
from pmtrans.signals import stop_on_signals
from pmtrans.training.accelerator import refuse_without_compiler
from pmtrans.training.adopt import adopt_adapted, adopt_stages
from pmtrans.training.conclusion import choose_reference, conclude
from pmtrans.training.failures import explained_faults, explained_memory
from pmtrans.training.finished import Finished
from pmtrans.training.probe import probe_stage
from pmtrans.training.records import refuse_missing
from pmtrans.training.resume import Opened, open_run
from pmtrans.training.session import Session
from pmtrans.training.situation import doubts, find_situation, refuse_reserved
from pmtrans.training.stage import train_stage
from pmtrans.training.start import first_weights
from pmtrans.training.target_labels import record_labels, remember_before_labels

SECOND_VIEW = 0.2  # of held-out accuracy: pretrained backbones were at most 0.08 behind, random ones are far behind


def train(
    config: Config,
    out: Path,
    reporter: Reporter,
    overwrite: bool = False,
    resume: str = "auto",
    start_from: Path | None = None,
) -> Summary:
    """Train, or resume, the run in ``out``; ``resume``: ``auto``, ``never``, or a run or checkpoint elsewhere.

    ``start_from``: a run whose finished probe and source stage are taken over instead of done again.
    """
    with opened(config, out, reporter, overwrite, resume, start_from) as (config, folder, session, state):
        if state is Opened.FINISHED:
            session.reporter.note(f"Run {one_line(out)} is finished already.")
            return session.processes.on_main(lambda: read_summary(folder.summary), Summary)
        return _run_stages(config, folder, session)


def train_probe(config: Config, out: Path, reporter: Reporter) -> Finished | None:
    """The data checked and the first stage alone; ``train`` with the same configuration does the others."""
    with opened(config, out, reporter) as (config, folder, session, _):
        return probe_stage(config, folder.probe, session)


@contextmanager
def opened(
    config: Config,
    out: Path,
    reporter: Reporter,
    overwrite: bool = False,
    resume: str = "auto",
    start_from: Path | None = None,
    read: Callable[[Config, Reporter], Data] = read_data,
    prepare: Callable[[RunFolder], None] | None = None,
) -> Iterator[tuple[Config, RunFolder, Session, Opened]]:
    """The data read, the folder claimed, signals listened to, and faults explained while the block runs.

    ``prepare`` stages, in the main process, what the first stage of an unfinished run needs.
    """
    config = with_absolute_paths(config)
    refuse_missing(config.train.loggers)
    _refuse_random_head(config)
    with joined() as processes:
        reporter = reporter if processes.is_main else Reporter(quiet=True)
        # one that cannot be used is told before anything is read
        device = processes.together(lambda: choose_device(config.train.device))
        if processes.count > 1 and device.type == "cpu" and has_mps():
            reporter.warn("several processes cannot share Apple's MPS, so they train on the CPU; one would train on it")
        if config.train.compile:
            processes.together(lambda: refuse_without_compiler(device))
        cache = processes.together(lambda: open_cache(config.data.cache, reporter.warn))
        data = replace(_read(config, reporter, processes, read), cache=cache)
        refuse_reserved(config, data.source.classes)
        folder = RunFolder(out)
        with ExitStack() as held:
            stop = held.enter_context(stop_on_signals())
            held.enter_context(explained_faults(folder))
            held.enter_context(explained_memory(config, folder))

            def open_folder() -> Opened:
                held.enter_context(claim(folder, overwrite))
                state = _open(folder, config, data, resume, start_from)
                if prepare is not None and state is not Opened.FINISHED:
                    prepare(folder)
                return state

            state = processes.on_main(open_folder, Opened)
            yield config, folder, Session(data, reporter, stop, processes), state


def _read(config: Config, reporter: Reporter, processes: Processes, read: Callable[[Config, Reporter], Data]) -> Data:
    """The data, as the main process reads it."""
    kinds = Data, Target, Domain, LabelledDomain, TargetLabels, GivenModel, Preprocessing
    return processes.on_main(lambda: read(config, reporter), *kinds)


def _open(folder: RunFolder, config: Config, data: Data, resume: str, start_from: Path | None) -> Opened:
    """The claimed folder, ready for the first stage that is not finished."""
    starts_adapted = config.train.start == "adapted"
    if starts_adapted and start_from is None and not folder.first.path.is_dir():
        raise ConfigError("train.start=adapted starts at the adapted model of another run: name it with --from RUN.")
    found = fingerprint(data.source, data.target.domain, data.labels_given)
    state = open_run(folder, config, found, resume)
    if state is not Opened.FINISHED:
        write_json(folder.classes, list(data.source.classes))
        if config.data.given is None:
            write_json(folder.holdout, list(data.held_places))
        record_labels(folder, data)
    if state is Opened.NEW:
        write_json(folder.environment, environment())
    if start_from is not None and state is not Opened.FINISHED:
        adopt_stages(start_from, folder, config, data.source.classes, found)
        if starts_adapted:
            adopt_adapted(start_from, folder)
        remember_before_labels(start_from, folder, data)
    return state


def _run_stages(config: Config, folder: RunFolder, session: Session) -> Summary:
    begin = time.monotonic()
    name = config.method["name"]

    # probe: a linear classifier on the untrained backbone
    probe = probe_stage(config, folder.probe, session)

    # source: fine-tuning from the probe's head, to its end
    source_only = None
    if has_source_stage(config):
        source_only = _source_stages(config, folder, session)

    # adaptation: the method, from what the earlier stages made
    weights = first_weights(config, folder, session, source_only)
    reference = session.processes.together(lambda: choose_reference(probe, source_only))  # in the main process
    evidence = reference.evidence if reference else None
    _warn_of_classes(config, session, probe, source_only)
    has_second_view = bool(session.processes.highest(untrained_is_close(probe, source_only)))
    session.reporter.expect(0)  # nothing comes after it; a finished source stage has left what it expected
    adapted = train_stage(name, config, folder, session, weights, evidence, has_second_view)

    # conclusion: what the run says of itself, and which model it ships
    def concluded() -> Summary:
        assert probe is not None
        assert adapted is not None, "the main process has what came of each stage"
        seconds = sum(stage.seconds for stage in (probe, source_only, adapted) if stage is not None)
        before = source_only or (adapted if name == "source_only" else probe)
        situation = find_situation(config, session.data, before.evidence, before is probe)
        return conclude(config, folder, probe, source_only, adapted, reference, seconds, situation, session.data)

    summary = session.processes.on_main(concluded, Summary)
    session.reporter.note(f"Finished in {time.monotonic() - begin:.0f} s: {one_line(folder.path)}")
    return summary


def untrained_is_close(probe: Finished | None, source_only: Finished | None) -> bool:
    """Whether the untrained backbone tells the held-out source apart nearly as well as the trained one.

    Then its features are worth a second look; those of a backbone without pretrained weights are not.
    """
    if probe is None or probe.evidence is None or source_only is None or source_only.evidence is None:
        return probe is not None
    before, after = source_accuracy(probe.evidence), source_accuracy(source_only.evidence)
    return before >= after - SECOND_VIEW


def _warn_of_classes(config: Config, session: Session, probe: Finished | None, source_only: Finished | None) -> None:
    """Before adaptation, what speaks against ``data.target_classes``; the main process has the evidence."""
    if probe is None or probe.evidence is None:
        return
    trained = source_only.evidence if source_only is not None and source_only.evidence is not None else probe.evidence
    for doubt in doubts(config, session.data.source.classes, trained, probe.evidence):
        session.reporter.warn(doubt)


def _source_stages(config: Config, folder: RunFolder, session: Session) -> Finished | None:
    """Source-only to its end, and, where a table wants it, for as many further steps as the method has."""
    cost, stage = _cost_of_method(config), source_stage(config)
    ratio = _steps(config, session) / _steps(stage, session)
    session.reporter.expect(ratio * (cost + _is_continued(config)))
    weights = session.weights_of(folder.probe) if config.train.start != "pretrained" else None
    source_only = train_stage("source only", stage, folder.baseline, session, weights)
    if _is_continued(config):
        session.reporter.expect(cost)
        weights = session.weights_of(folder.baseline)
        further = stage.model_copy(update={"train": config.train})
        source_only = train_stage("source only, continued", further, folder.continued, session, weights)
    return source_only


def _steps(config: Config, session: Session) -> int:
    data, batch_size = session.data, config.train.batch_size
    return count_steps(config.train, len(data.source), len(data.target.domain), batch_size)[0]


def _cost_of_method(config: Config) -> float:
    """Of a step of the adaptation, in steps of the source stage, which encode one image of each pair."""
    entry = METHODS[config.method["name"]]
    options = entry.options.model_validate({key: value for key, value in config.method.items() if key != "name"})
    return float(sum(entry.method.images_per_pair(options, progress) for progress in (0.0, 0.5))) / 2


def _is_continued(config: Config) -> bool:
    """Whether source-only gets as many further steps as the method, for a table."""
    return config.train.baseline_steps == "continued" and config.train.starts_from_source


def _refuse_random_head(config: Config) -> None:
    """A method that never trains the classifier needs one from an earlier stage."""
    name = config.method["name"]
    if config.train.start == "pretrained" and METHODS[name].method.keeps_head:
        raise ConfigError(
            f"Method {name!r} never trains its classifier, and train.start=pretrained gives it a random one: "
            "take train.start=average, source or probe."
        )


def has_source_stage(config: Config) -> bool:
    """Whether source-only is trained before the method: to start from, or to compare with."""
    return config.method["name"] != "source_only" and (config.train.baseline or config.train.starts_from_source)


def source_stage(config: Config) -> Config:
    """The settings of the source stage of a run: source-only, with its own number of steps where one is given."""
    shared: dict[str, Any] = {
        name: config.method[name] for name in ("head", "label_smoothing") if name in config.method
    }
    method = {"name": "source_only", **shared}
    return config.model_copy(update={"method": method, "train": config.train.of_source_stage()})
