"""What every method must do, whoever wrote it: a new entry in METHODS is tested here without another line."""

from __future__ import annotations

import copy
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator

from pmtrans.backbones.backbone import backbones_in
from pmtrans.backbones.blocks import transformer_blocks
from pmtrans.config import Config
from pmtrans.data.batch import Batch
from pmtrans.data.domains import read_data
from pmtrans.errors import ModelError
from pmtrans.methods import METHODS, Sizes
from pmtrans.methods.method import Context, Method, Moment, SourcePass, TargetPass, check_players
from pmtrans.model import Model
from pmtrans.processes.group import Processes
from pmtrans.progress import Reporter
from pmtrans.settings import load_config
from pmtrans.signals import Interrupted, StopRequest
from pmtrans.training.build import build
from pmtrans.training.loop import Loop
from pmtrans.training.passes import Passes
from pmtrans.training.resume import last_snapshot

SIZES = Sizes(classes=3, source_images=12, target_images=9)
every_method = pytest.mark.parametrize("name", METHODS)
AT_REST = {  # players that a step half way need not move
    ("shot", "classifier"),  # frozen
    ("source_free", "classifier"),  # frozen
    ("fixbi", "temperatures"),  # moved only where a target image is doubted
}
REFUSED = {("tvt", "swin")}  # it weighs the attention of a class token


class StopsAt(Reporter):
    """As if a signal came during a step."""

    def __init__(self, stop: StopRequest, at: int) -> None:
        super().__init__(quiet=True)
        self.request, self.at = stop, at

    def step(self, step: int, rate: float) -> None:
        if step == self.at:
            self.request.signal = signal.SIGTERM


def loop_of(config: Config, folder: Path, stop_at: int = 0) -> Loop:
    quiet, stop = Reporter(quiet=True), StopRequest()
    method, task, _ = build(config, read_data(config, quiet), quiet)
    folder.mkdir(exist_ok=True)
    reporter = StopsAt(stop, stop_at)
    accelerator = Accelerator(cpu=True)
    passes = Passes(method.model, task, 0, accelerator, Processes())
    snapshot = last_snapshot(folder, quiet)
    name = config.method["name"]
    return Loop(name, method, task, config, folder, accelerator, passes, reporter, stop, snapshot=snapshot)


def config_of(name: str, domains: tuple[Path, Path], settings: list[str], steps: int) -> Config:
    overrides = [*settings, f"train.max_steps={steps}", "train.epochs=2", "train.learning_rate=1e-3"]
    flags = {"data.source": str(domains[0]), "data.target": str(domains[1]), "method.name": name}
    return load_config(None, overrides, flags)


def images_counted(method: Method, batch: Batch, moment: Moment) -> float:
    """Rows that leave the last block of any transformer in one step, for each pair."""
    rows: list[int] = []
    last = [transformer_blocks(backbone)[-1] for backbone in backbones_in(method)]
    hooks = [block.register_forward_hook(lambda block, given, out: rows.append(len(out))) for block in last]
    for phase in method.phases(moment):
        method(batch, replace(moment, phase=phase))
    for hook in hooks:
        hook.remove()
    return sum(rows) / len(batch.target_index)


SWITCHES: list[tuple[str, dict[str, object]]] = [
    *((name, {}) for name in METHODS),
    ("pmtrans", {"preset": "reference"}),
    ("pmtrans", {"preset": "paper", "mic": 0.5}),
    ("mcd", {"class_balance": 0.0, "repeats": 2}),
    ("cgdm", {"repeats": 2}),
    ("dwl", {"repeats": 1}),
    ("mic", {"mcc": 0.5}),
    ("fixbi", {"alone": 0.9}),
]


@pytest.mark.parametrize(("name", "switches"), SWITCHES)
def test_a_method_says_how_many_images_its_steps_put_through_a_transformer(
    name: str, switches: dict[str, object], tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    entry = METHODS[name]
    options = entry.options.model_validate(switches)
    model = tiny(head=options.head)
    method, batch = entry.create(model, options, SIZES), batch_for(model)
    for step in (0, 60):
        moment = Moment(step, 100, 10)
        assert images_counted(method, batch, moment) == method.images_per_pair(options, moment.progress)


@every_method
def test_training_resumed_in_its_midst_is_the_training_that_was_never_interrupted(
    name: str, two_domains: tuple[Path, Path], tmp_path: Path, tiny_settings: list[str]
) -> None:
    """Two steps an epoch, stopped after the third: what was decided at the epoch's start must have survived."""
    config = config_of(name, two_domains, [*tiny_settings, "train.batch_size=10"], steps=4)
    whole = loop_of(config, tmp_path / "whole")
    before = {key: value.clone() for key, value in whole.method.state_dict().items()}
    whole.fit()
    moved = [key for key, value in whole.method.model.named_parameters() if not value.equal(before[f"model.{key}"])]
    assert any(key.startswith("backbone.") for key in moved)
    with pytest.raises(Interrupted):
        loop_of(config, tmp_path / "halves", stop_at=3).fit()
    resumed = loop_of(config, tmp_path / "halves")
    assert (resumed.step, resumed.epoch) == (3, 2)
    resumed.fit()
    expected, found = whole.method.state_dict(), resumed.method.state_dict()
    assert expected.keys() == found.keys()
    assert [key for key in expected if not torch.equal(expected[key], found[key])] == []


def step_all_phases(method: Method, batch: Batch, moment: Moment) -> dict[str, dict[str, torch.Tensor]]:
    """Forward and backward of each phase, between-step hooks included, on random passes over the data."""
    torch.manual_seed(1)
    features, classes = method.model.backbone.features, SIZES.classes
    target = TargetPass(torch.randn(SIZES.target_images, features), torch.randn(SIZES.target_images, classes))
    labels = torch.arange(SIZES.source_images) % classes
    source = SourcePass(torch.randn(len(labels), features), torch.randn(len(labels), classes), labels)
    context = Context(lambda: target, lambda: source)
    for step in (0, moment.step):
        now = Moment(step, moment.steps, moment.steps_per_epoch)
        if method.chooses_pairs:
            method.choose_pairs(now, context)
        method.before_step(now, context)
    outputs = {}
    for phase in method.phases(moment):
        outputs[phase] = method(batch, Moment(moment.step, moment.steps, moment.steps_per_epoch, phase))
        outputs[phase]["loss"].backward()
    method.after_step(moment)
    return outputs


@every_method
@pytest.mark.parametrize(("family", "head", "bottleneck"), [("vit", "linear", 0), ("swin", "mlp", 8)])
def test_a_step_gives_finite_losses_and_reaches_every_player(
    name: str, family: str, head: str, bottleneck: int, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny(family, head=head, bottleneck=bottleneck)
    options = METHODS[name].options.model_validate({"head": head})
    if (name, family) in REFUSED:
        with pytest.raises(ModelError):
            METHODS[name].create(model, options, SIZES)
        return
    method = METHODS[name].create(model, options, SIZES)
    method.train()
    players = method.players(10.0)
    check_players(players, method)
    assert {mover for phase in method.phases(Moment(50, 100, 10)).values() for mover in phase or ()} <= {
        player.name for player in players
    }
    outputs = step_all_phases(method, batch_for(model), Moment(50, 100, 10))
    for phase, values in outputs.items():
        assert values["loss"].ndim == 0, phase
        assert all(value.isfinite().all() for value in values.values()), phase
        assert not any(value.requires_grad for key, value in values.items() if key != "loss"), phase
    assert all(p.grad is None or p.grad.isfinite().all() for p in method.parameters())
    if model.backbone.bottleneck is not None:
        assert all(p.grad is not None and p.grad.any() for p in model.backbone.bottleneck.linear.parameters())
    for player in players:
        reached = any(p.grad is not None and p.grad.any() for _, p in player.parameters)
        assert reached or (name, player.name) in AT_REST, player.name


@pytest.mark.parametrize("name", [name for name in METHODS if name != "source_only"])
def test_the_methods_own_loss_counts_from_the_first_step_on(
    name: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    """Other target images change the loss of step 0; half way, when every ramp is up, the features' gradient too."""
    method = METHODS[name].create(tiny(), METHODS[name].options(), SIZES).eval()
    batch = batch_for(method.model)
    others = replace(batch, target_images=batch.target_images.flip(2) + 1)

    def stepped(of: Batch, step: int) -> tuple[list[float], list[torch.Tensor]]:
        fresh = copy.deepcopy(method)
        outputs = step_all_phases(fresh, of, Moment(step, 100, 10))
        gradients = [p.grad for p in fresh.model.backbone.parameters() if p.grad is not None]
        return [float(values["loss"].detach()) for values in outputs.values()], gradients

    assert stepped(batch, 0)[0] == stepped(batch, 0)[0]
    assert stepped(batch, 0)[0] != stepped(others, 0)[0]
    slopes = zip(stepped(batch, 50)[1], stepped(others, 50)[1], strict=True)
    assert not all(torch.equal(one, other) for one, other in slopes)


@every_method
def test_a_method_does_without_the_domain_that_it_says_it_does_not_use(
    name: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    """The loop then loads none of its images."""
    method = METHODS[name].create(tiny(), METHODS[name].options(), SIZES).eval()
    assert method.uses_source or method.uses_target
    batch, none = batch_for(method.model), torch.empty(0)
    if not method.uses_source:
        batch = replace(batch, source_images=none, source_labels=none.long(), source_index=none.long())
    if not method.uses_target:
        batch = replace(batch, target_images=none, target_index=none.long())
    for step in (0, 50):
        outputs = step_all_phases(method, batch, Moment(step, 100, 10))
        assert all(values["loss"].isfinite() for values in outputs.values())


@every_method
def test_losses_stay_in_float32_under_autocast(
    name: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny()
    method = METHODS[name].create(model, METHODS[name].options(), SIZES).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = step_all_phases(method, batch_for(model), Moment(50, 100, 10))
    assert all(values["loss"].dtype == torch.float32 for values in outputs.values())


@every_method
def test_a_method_says_what_it_is_and_explains_its_switches(name: str) -> None:
    entry = METHODS[name]
    assert all(isinstance(getattr(entry.method, key), str) for key in ("title", "paper", "needs"))
    assert 2010 < entry.method.year < 2030
    assert {"head", "label_smoothing"} <= entry.options.model_fields.keys()
    assert all(field.description for field in entry.options.model_fields.values())
