"""Right on Apple's MPS without a Mac: no float64, no operation that MPS lacks, no copy that is not waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.distributions import Beta
from torch.utils._python_dispatch import _disable_current_modes

from pmtrans.config import TrainConfig
from pmtrans.data.batch import Batch
from pmtrans.data.domain import Domain
from pmtrans.data.domains import read_data
from pmtrans.data.loader import image_batches
from pmtrans.evaluation import linear_probe
from pmtrans.evaluation.linear_probe import fit_probe
from pmtrans.inference.predictor import Predictor
from pmtrans.methods import METHODS, Method, Sizes
from pmtrans.methods.method import Context, Moment, SourcePass, TargetPass
from pmtrans.methods.parts import head_alignment
from pmtrans.methods.parts.target_classes import Kind, TargetClasses
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
from simulated_cuda import place
from simulated_mps import DEVICE, UnsupportedByMps, simulated_mps

pytestmark = pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")  # copy.deepcopy does
SIZES = Sizes(classes=3, source_images=12, target_images=9)
GUARD = FiniteGuard(Path(), Domain(Path(), ()), Domain(Path(), ()))


def made(name: str, model: Model, **switches: object) -> Method:
    return METHODS[name].create(model, METHODS[name].options.model_validate(switches), SIZES).train()


@pytest.fixture(autouse=True)
def nothing_depends_on_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """CAN and ILA-DA order pairs on the host by the values of labels, which a simulation has not."""

    def pairs_on_host(source: Tensor, target: Tensor, classes: int, run: int, pairs: int, *_: Any) -> Tensor:
        return torch.stack([source.cpu()[:1], target.cpu()[:1]], 1).expand(pairs, 2)

    for name in ("can", "ila"):
        monkeypatch.setattr(f"pmtrans.methods.{name}.paired_runs", pairs_on_host)
    monkeypatch.setattr(head_alignment, "STEPS", 2)  # all are alike


@pytest.fixture
def images_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are decoded by the real loader, outside of the simulation."""

    def read(*args: Any, **options: Any) -> Iterator[Any]:
        with _disable_current_modes():
            return iter(list(image_batches(*args, **options)))

    for module in ("evaluation.passes", "inference.predictor"):
        monkeypatch.setattr(f"pmtrans.{module}.image_batches", read)


def seen_on_mps(width: int) -> tuple[SourcePass, TargetPass]:
    labels = torch.arange(12, device=DEVICE) % SIZES.classes
    source = SourcePass(torch.randn(12, width, device=DEVICE), torch.randn(12, SIZES.classes, device=DEVICE), labels)
    return source, TargetPass(torch.randn(9, width, device=DEVICE), torch.randn(9, SIZES.classes, device=DEVICE))


def take_steps(method: Method, batch: Batch) -> None:
    """The first of a run and one at the start of a later epoch, with all that the loop does around them."""
    place(method, DEVICE)
    batch = batch.to(torch.device(DEVICE))
    config = TrainConfig(learning_rate=1e-4, clip=1.0)
    step = Step(method, method, create_optimiser(method, config), Accelerator(cpu=True), config, GUARD)
    source, target = seen_on_mps(method.model.backbone.features)
    context = Context(lambda: target, lambda: source)
    for moment in (Moment(0, 100, 10), Moment(50, 100, 10)):
        if method.chooses_pairs:
            assert method.choose_pairs(moment, context).device.type == "mps"
        method.before_step(moment, context)
        values = step([batch], moment)
        method.after_step(moment)
        assert {value.device.type for value in values.values() if isinstance(value, Tensor)} == {"mps"}
    assert {value.device.type for value in method.state_dict().values()} == {"mps"}


@pytest.mark.parametrize("name", METHODS)
def test_steps_of_every_method_with_their_backward_passes(
    name: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    method = made(name, tiny())
    with simulated_mps() as mps:
        take_steps(method, batch_for(method.model))
        assert {"native_layer_norm_backward", "_fused_adamw_"} <= mps.used


PMTRANS: list[dict[str, Any]] = [
    *({"mixing": name} for name in MIXINGS),
    {"ratio_weighs": "target", "mixing": "hierarchical", "attention": "softmaxed"},
    {"pseudo_labels": "neighbours", "confidence": False, "alpha": "softplus"},
    {"pseudo_labels": "propagation", "reuse_features": True, "alpha": "ramp", "attention": "uniform"},
    {"align_head": "never", "mcc": 1.0, "mic": 1.0, "information": 0.1, "beta": "fixed"},
]


@pytest.mark.parametrize("family", ["vit", "swin"])
@pytest.mark.parametrize("switches", PMTRANS, ids=str)
def test_steps_of_pmtrans_with_its_switches(
    switches: dict[str, Any], family: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    method = made("pmtrans", tiny(family, head="mlp"), **switches, head="mlp")
    with simulated_mps():
        take_steps(method, batch_for(method.model))


def test_a_forward_pass_in_bf16(tiny: Callable[..., Model], batch_for: Callable[..., Batch]) -> None:
    method = made("pmtrans", tiny())
    with simulated_mps():
        place(method, DEVICE)
        with torch.autocast("mps", torch.bfloat16):
            loss = method(batch_for(method.model).to(torch.device(DEVICE)), Moment(53, 100, 10))["loss"]
        assert (loss.device.type, loss.dtype) == ("mps", torch.float32)


def test_pseudo_labels_stay_on_the_device() -> None:
    with simulated_mps():
        features_MF, logits_MK = torch.randn(90, 8, device=DEVICE), torch.randn(90, 3, device=DEVICE)
        labels_M = kmeans_pseudo_labels(features_MF, logits_MK=logits_MK, chunk=40)
        confidence_M = label_confidence(features_MF, labels_M, 3, chunk=40)
        spread_MK = propagated_probabilities(features_MF, logits_MK.softmax(1), chunk=40)
        clustered_M, distance_M = spherical_kmeans(features_MF, torch.randn(3, 8, device=DEVICE), chunk=40)
        found = (labels_M, confidence_M, spread_MK, clustered_M, distance_M)
        assert {value.device.type for value in found} == {"mps"}


@pytest.mark.parametrize("kind", ["partial", "open"])
def test_classes_of_the_target_are_counted_in_float64_on_the_host(kind: Kind) -> None:
    part = TargetClasses(kind, SIZES.classes, SIZES.target_images)
    with simulated_mps():
        place(part, DEVICE)
        _, target = seen_on_mps(8)
        part.update(target)
        assert part.known(target).logits_MK.device.type == "mps"
        assert {value.device.type for value in part.state_dict().values()} == {"mps"}


def moved(module: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """``Module.to`` for parameters that are simulated already, which torch cannot exchange."""
    for part in module.modules():
        for name, parameter in part._parameters.items():
            assert parameter is not None
            part._parameters[name] = nn.Parameter(parameter.detach().to(device, dtype))
    return module


@pytest.mark.parametrize("holdout", [0, 5])
def test_a_probe_is_fitted_in_float64_on_the_host(
    holdout: int, tiny: Callable[..., Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear_probe, "ITERATIONS", 2)
    monkeypatch.setattr(nn.Module, "to", moved)
    head = tiny(head="mlp").head
    with simulated_mps():
        place(head, DEVICE)
        width = next(head.parameters()).shape[1]
        source, target = seen_on_mps(width)
        held_out = source.features_NF[:holdout], source.labels_N[:holdout]
        fitted = fit_probe(head, source.features_NF, source.labels_N, *held_out, seed=0).head
        assert fitted(target.features_MF).device.type == "mps"
        assert {parameter.dtype for parameter in fitted.parameters()} == {torch.float32}


@pytest.mark.usefixtures("images_are_read")
def test_passes_stay_on_the_device_and_the_evidence_is_judged_on_the_host(
    two_domains: tuple[Path, Path], tiny_settings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Evidence, "__post_init__", lambda _: None)  # it reads values
    config = load_config(None, tiny_settings, {"data.source": str(two_domains[0]), "data.target": str(two_domains[1])})
    quiet = Reporter(quiet=True)
    method, task, _ = build(config, read_data(config, quiet), quiet)
    with simulated_mps():
        place(method, DEVICE)
        passes = Passes(method.model, task, 0, Accelerator(cpu=True), Processes())
        assert passes.target().logits_MK.device.type == "mps"
        assert passes.source().labels_N.device.type == "mps"
        evidence = evidence_of(passes.evaluation(0), [0] * len(task.holdout))
        assert {value.device.type for value in vars(evidence).values() if value is not None} == {"cpu"}


@pytest.mark.usefixtures("images_are_read")
def test_predictions(saved_model: Callable[..., Path], two_domains: tuple[Path, Path]) -> None:
    trained, paths = load_model(saved_model()), sorted(map(str, two_domains[1].rglob("*.*")))
    with simulated_mps():
        predictor = Predictor(trained, DEVICE)
        assert len(predictor.predict(paths[:8], batch_size=4)) == 8
        images = torch.randn(2, 3, *[trained.model.backbone.image_size] * 2)
        logits_BK, attention_BHW = predictor.logits_and_attention(images)
        assert {logits_BK.device.type, attention_BHW.device.type} == {"mps"}


# what is refused: without it the tests above could not fail

REFUSED: dict[str, Callable[[Tensor], object]] = {
    "to float64": lambda x: x.double(),
    "made in float64": lambda x: torch.zeros(2, dtype=torch.float64, device=x.device),
    "brought in float64": lambda x: torch.zeros(2, dtype=torch.float64).to(x.device),
    "a draw from a Beta": lambda x: Beta(x[0, 0], x[0, 1], validate_args=False).rsample((3,)),
    "singular values": lambda x: torch.linalg.svdvals(x),
    "a triangular root": lambda x: torch.linalg.cholesky(x),
    "a gradient of distances": lambda x: torch.cdist(x.requires_grad_(), x).sum().backward(),
    "a copy that is not waited for": lambda x: torch.zeros(2).to(x.device, non_blocking=True),
    "an operation without a kernel": lambda x: torch.special.log_ndtr(x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_mps_has_not_is_refused(name: str) -> None:
    with simulated_mps():
        matrix = torch.randn(4, 4, device=DEVICE)
        with pytest.raises(UnsupportedByMps):
            REFUSED[name](matrix)


def test_what_mps_has_is_let_pass() -> None:
    layer = nn.Linear(4, 4)
    with simulated_mps() as mps:
        place(layer, DEVICE)
        loss = layer(torch.randn(2, 4).to(DEVICE)).cpu().double().square().sum()  # float64 is the host's
        loss.backward()
        assert layer.weight.grad is not None
        assert (layer.weight.grad.device.type, layer.weight.grad.dtype) == ("mps", torch.float32)
        assert {"addmm", "_to_copy", "mm"} <= mps.used
