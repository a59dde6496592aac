"""Right on CUDA without a GPU: no operation has tensors of two devices, and in a step the host waits once a phase.

That is for the check of loss and gradients (docs/decisions.md). A copy of an answer to the host is a wait too; outside
of steps there may be some, but no more than are said here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.distributions import Beta
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data import DataLoader

from pmtrans.config import TrainConfig
from pmtrans.data import loader
from pmtrans.data.batch import Batch
from pmtrans.data.domain import Domain
from pmtrans.data.domains import read_data
from pmtrans.data.loader import image_batches
from pmtrans.inference.predictor import Predictor
from pmtrans.methods import METHODS, Method, Sizes
from pmtrans.methods.method import Context, Moment, SourcePass, TargetPass
from pmtrans.methods.parts import head_alignment
from pmtrans.methods.parts.head_alignment import align_head
from pmtrans.mixing import MIXINGS
from pmtrans.model import Model
from pmtrans.processes.group import Processes
from pmtrans.progress import Reporter
from pmtrans.pseudo_labels import (
    kmeans_pseudo_labels,
    label_confidence,
    propagated_probabilities,
    spherical_kmeans,
)
from pmtrans.run.model_folder import load_model
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.judge import evidence_of
from pmtrans.settings import load_config
from pmtrans.training.build import build
from pmtrans.training.failures import FiniteGuard
from pmtrans.training.passes import Passes
from pmtrans.training.players import create_optimiser
from pmtrans.training.step import Step
from simulated_cuda import MixedDevicesError, Watch, place, simulated, without_autograd

pytestmark = pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")  # copy.deepcopy does
SIZES = Sizes(classes=3, source_images=12, target_images=9)
WITHIN_AN_EPOCH = Moment(53, 100, 10)
GUARD = FiniteGuard(Path(), Domain(Path(), ()), Domain(Path(), ()))
ALIGNMENT = 2  # steps
HOST = torch.zeros(4)  # from before the simulation
READ = "_local_scalar_dense"
SOLVED: dict[str, dict[str, int]] = {  # a decomposition says to the host whether it converged
    "bnm": {"_linalg_svd": 1},
    "ckb": {"_linalg_check_errors": 2, "_linalg_svd": 1},
}


def made(name: str, model: Model, **switches: object) -> Method:
    return METHODS[name].create(model, METHODS[name].options.model_validate(switches), SIZES).train()


@pytest.fixture(autouse=True)
def runs_drawn_by_no_label(monkeypatch: pytest.MonkeyPatch) -> None:
    """CAN and ILA-DA order pairs on the host by the values of labels, which a simulation has not."""

    def pairs_on_host(source: Tensor, target: Tensor, classes: int, run: int, pairs: int, *_: Any) -> Tensor:
        return torch.stack([source.cpu()[:1], target.cpu()[:1]], 1).expand(pairs, 2)

    for name in ("can", "ila"):
        monkeypatch.setattr(f"pmtrans.methods.{name}.paired_runs", pairs_on_host)


@pytest.fixture(autouse=True)
def short_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its steps are all alike."""
    monkeypatch.setattr(head_alignment, "STEPS", ALIGNMENT)


@pytest.fixture
def loaders(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Files are decoded by the real loaders, outside of the simulation; what each was to do, pinning included."""
    asked: list[dict[str, Any]] = []

    class Unpinned(DataLoader[Any]):
        def __init__(self, dataset: Any, **options: Any) -> None:
            asked.append(options)
            super().__init__(dataset, **{**options, "pin_memory": False})

    def read(*args: Any, **options: Any) -> Iterator[Any]:
        with _disable_current_modes():
            return iter(list(image_batches(*args, **options)))

    for module in ("evaluation.passes", "inference.predictor"):
        monkeypatch.setattr(f"pmtrans.{module}.image_batches", read)
    monkeypatch.setattr(loader, "DataLoader", Unpinned)
    return asked


def prepare_step(method: Method, device: str) -> Context:
    """What is done before the first step and at the start of an epoch; here the host may wait."""
    width, classes = method.model.backbone.features, SIZES.classes
    target = TargetPass(torch.randn(9, width, device=device), torch.randn(9, classes, device=device))
    labels = torch.arange(12, device=device) % classes
    source = SourcePass(torch.randn(12, width, device=device), torch.randn(12, classes, device=device), labels)
    context = Context(lambda: target, lambda: source)
    for step in (0, 50):
        if method.chooses_pairs:
            assert method.choose_pairs(Moment(step, 100, 10), context).device.type == device
        method.before_step(Moment(step, 100, 10), context)
    return context


def waits_of_a_step(method: Method, batch: Batch, device: str, watch: Watch) -> Counter[str]:
    """A whole step within an epoch, as the loop takes it, with an average of the weights."""
    place(method, device)
    batch = batch.to(torch.device(device))
    config = TrainConfig(learning_rate=1e-4, clip=1.0)
    step = Step(method, method, create_optimiser(method, config), Accelerator(cpu=True), config, GUARD)
    context = prepare_step(method, device)
    watch.waits.clear()
    method.before_step(WITHIN_AN_EPOCH, context)
    values = step([batch], WITHIN_AN_EPOCH)
    method.after_step(WITHIN_AN_EPOCH)
    waits = Counter(watch.waits)
    moved = [parameter for parameter in method.parameters() if parameter in step.optimiser.state]
    assert len(moved) > 10
    assert {value.device.type for value in values.values() if isinstance(value, Tensor)} == {device}
    assert {value.device.type for value in method.state_dict().values()} == {device}
    return waits


@pytest.mark.parametrize("name", METHODS)
def test_a_step_on_cuda_waits_only_for_the_check_of_its_losses(
    name: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    """CGDM takes gradients in its forward pass, which autograd cannot give here: theirs are stood in for too."""
    method = made(name, tiny())
    with simulated() as watch, without_autograd():
        waits = waits_of_a_step(method, batch_for(method.model), "cuda", watch)
    assert waits == {READ: len(method.phases(WITHIN_AN_EPOCH)), **SOLVED.get(name, {})}


@pytest.mark.parametrize("name", METHODS)
def test_neither_does_its_backward_pass_read_anything(
    name: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    """On a simulated CPU, where autograd has a thread: also through CGDM's gradients of gradients."""
    method = made(name, tiny())
    with simulated("cpu") as watch:
        waits = waits_of_a_step(method, batch_for(method.model), "cpu", watch)
    drawn = {"ssrt": 2}  # the layer and the side that teaches, which are drawn on the host
    assert waits == {READ: len(method.phases(WITHIN_AN_EPOCH)) + drawn.get(name, 0), **SOLVED.get(name, {})}


PMTRANS: list[dict[str, Any]] = [
    *({"mixing": name} for name in MIXINGS),
    {"ratio_weighs": "target", "mixing": "hierarchical", "attention": "softmaxed"},
    {"pseudo_labels": "neighbours", "confidence": False, "alpha": "softplus"},
    {"pseudo_labels": "propagation", "reuse_features": True, "alpha": "ramp", "attention": "uniform"},
    {"align_head": "never", "mcc": 1.0, "mic": 1.0, "information": 0.1, "beta": "fixed"},
]


@pytest.mark.parametrize("family", ["vit", "swin"])
@pytest.mark.parametrize("switches", PMTRANS, ids=str)
def test_neither_does_pmtrans_with_its_switches_wait(
    switches: dict[str, Any], family: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    method = made("pmtrans", tiny(family, head="mlp"), **switches, head="mlp")
    with simulated() as watch, without_autograd():
        assert waits_of_a_step(method, batch_for(method.model), "cuda", watch) == {READ: 1}


def test_pseudo_labels_stay_on_the_device() -> None:
    with simulated() as watch:
        features_MF, logits_MK = torch.randn(90, 8, device="cuda"), torch.randn(90, 3, device="cuda")
        labels_M = kmeans_pseudo_labels(features_MF, logits_MK=logits_MK, chunk=40)
        confidence_M = label_confidence(features_MF, labels_M, 3, chunk=40)
        spread_MK = propagated_probabilities(features_MF, logits_MK.softmax(1), chunk=40)
        assert watch.waits == []
        clustered_M, distance_M = spherical_kmeans(features_MF, torch.randn(3, 8, device="cuda"), chunk=40)
        assert watch.waits == ["equal"]  # after each round: whether a label has changed
        found = (labels_M, confidence_M, spread_MK, clustered_M, distance_M)
        assert [tuple(value.shape) for value in found] == [(90,), (90,), (90, 3), (90,), (90,)]
        assert {value.device.type for value in found} == {"cuda"}


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_an_alignment_of_the_head_reads_nothing(device: str, tiny: Callable[..., Model]) -> None:
    """AdamW counts its steps on the host. On the CPU with a backward pass that is real."""
    head = tiny(head="mlp").head
    width, classes = next(head.parameters()).shape[1], 3
    with simulated(device) as watch, without_autograd() if device == "cuda" else nullcontext():
        place(head, device)
        labels = torch.zeros(12, dtype=torch.long, device=device)
        source = SourcePass(torch.randn(12, width, device=device), torch.randn(12, classes, device=device), labels)
        target = TargetPass(torch.randn(9, width, device=device), torch.randn(9, classes, device=device))
        align_head(head, source, target, 0.1)
        steps = ALIGNMENT * len(list(head.parameters())) if device == "cpu" else 0
        assert Counter(watch.waits) == ({READ: steps} if steps else {})
        assert {value.device.type for value in head.state_dict().values()} == {device}


def test_passes_wait_for_nothing_and_the_evidence_is_judged_on_the_host(
    two_domains: tuple[Path, Path],
    tiny_settings: list[str],
    loaders: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Evidence, "__post_init__", lambda _: None)  # it reads values, on the host
    config = load_config(None, tiny_settings, {"data.source": str(two_domains[0]), "data.target": str(two_domains[1])})
    quiet = Reporter(quiet=True)
    method, task, _ = build(config, read_data(config, quiet), quiet)
    with simulated() as watch:
        place(method, "cuda")
        passes = Passes(method.model, task, 0, Accelerator(cpu=True), Processes())
        evaluation, target = passes.evaluation(0), passes.target()
        assert watch.waits == []
        assert {target.features_MF.device.type, target.logits_MK.device.type} == {"cuda"}
        assert passes.source().labels_N.device.type == "cuda"
        assert watch.waits == ["_to_copy"]  # the labels
        watch.waits.clear()
        evidence = evidence_of(evaluation, [0] * len(task.holdout))
        assert watch.waits == ["_to_copy"] * 5  # features and logits of the target and of what is held out; a sample
        assert {value.device.type for value in vars(evidence).values() if value is not None} == {"cpu"}
        assert len(evidence.target_logits_MK) == len(task.target)
    assert [options["pin_memory"] for options in loaders] == [True] * 4  # else every copy above would be waited for


def test_predictions_of_a_batch_come_to_the_host_at_once(
    saved_model: Callable[..., Path], two_domains: tuple[Path, Path], loaders: list[dict[str, Any]]
) -> None:
    trained, paths = load_model(saved_model()), sorted(map(str, two_domains[1].rglob("*.*")))
    with simulated() as watch:
        predictor = Predictor(trained, "cuda")
        watch.waits.clear()
        assert len(predictor.predict(paths[:8], batch_size=4)) == 8
        assert watch.waits == ["_to_copy"] * 2
        assert [options["pin_memory"] for options in loaders] == [True]
        watch.waits.clear()
        images = torch.randn(2, 3, *[trained.model.backbone.image_size] * 2, device="cuda")
        logits_BK, attention_BHW = predictor.logits_and_attention(images)
        assert {logits_BK.device.type, attention_BHW.device.type} == {"cuda"}
        assert watch.waits == []


# what the watch sees: without it the tests above could not fail

WAITING: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x.sum()),
    "bool": lambda x: bool((x > 0).any()),
    "list": lambda x: x.tolist(),
    "copy to the host": lambda x: x.cpu(),
    "copy to the host without waiting": lambda x: x.to("cpu", non_blocking=True),
    "copy from the host": lambda x: torch.tensor([1.0, 2.0], device=x.device),
    "assignment from the host": lambda x: x.copy_(torch.zeros(4)),
    "equal": lambda x: torch.equal(x, x),
    "chosen by a mask": lambda x: x[x > 0],
    "put where a mask is": lambda x: x.index_put_((x > 0,), torch.ones_like(x)),
    "singular values": lambda x: torch.linalg.svdvals(x.outer(x)),
    "a system of equations": lambda x: torch.linalg.solve(x.outer(x), x),
    "a distribution that checks its arguments": lambda x: Beta(x[0], x[1], validate_args=True),
}


@pytest.mark.parametrize("name", WAITING)
def test_the_watch_sees_a_wait(name: str) -> None:
    with simulated() as watch:
        vector = torch.randn(4, device="cuda")
        watch.waits.clear()
        WAITING[name](vector)
        assert watch.waits


@pytest.mark.parametrize("size", [torch.nonzero, torch.unique])
def test_a_result_whose_size_depends_on_values_ends_the_simulation(size: Callable[[Tensor], object]) -> None:
    with simulated(), pytest.raises(DynamicOutputShapeException):
        size(torch.randn(4, device="cuda"))


@pytest.mark.parametrize(
    "mix",
    [
        lambda x: x + torch.zeros(4),
        lambda x: x[torch.zeros(2, dtype=torch.long)],
        lambda x: torch.zeros(4)[x.argsort()],
        lambda x: torch.cat([x, HOST]),
    ],
)
def test_tensors_of_two_devices_are_refused(mix: Callable[[Tensor], Tensor]) -> None:
    with simulated(), pytest.raises(MixedDevicesError):
        mix(torch.randn(4, device="cuda"))


def test_what_needs_no_wait_is_let_pass() -> None:
    layer = nn.Linear(4, 4)
    with simulated() as watch:
        layer.to("cuda")
        watch.waits.clear()
        x = layer(torch.randn(2, 4).to("cuda", non_blocking=True))
        x = x * torch.tensor(2.0) + torch.full((), 3.0, device="cuda")  # a number of the host goes with the kernel
        x[x > 0] = 0.0
        assert x.topk(2).indices.device.type == "cuda"
        assert watch.waits == []
