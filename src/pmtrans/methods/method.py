"""The seam of a method: an ``nn.Module`` whose ``forward(batch, moment)`` returns a dict with ``"loss"``.

A method says which players there are, what each owns, and in which direction it moves; the loop does the rest and
knows no method by name. Whatever must survive a crash is a parameter or a buffer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Protocol

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from pmtrans.backbones.head import HeadKind
from pmtrans.data.batch import Batch
from pmtrans.ema import EMATeacher
from pmtrans.losses.classification import classification_loss
from pmtrans.model import Model

NO_CLASS = -2  # given in place of a label: the image belongs to no known class
CheckStop = Callable[[], None]  # raises where a signal has asked to stop
LabelSmoothing = Annotated[float, Field(ge=0, lt=1, description="label smoothing of the classification loss")]


class Options(BaseModel):
    """The switches of a method, as they stand under ``method:`` in a configuration; these every method has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    head_behind_bottleneck: ClassVar[HeadKind | None] = None  # the head behind a bottleneck where none is given

    head: HeadKind = Field(
        "linear",
        description="classifier: linear, mlp, weight_norm (SHOT's), or a pair or mlp_pair whose logits add up (CGDM's)",
    )
    label_smoothing: LabelSmoothing = 0.1

    def of_backbone(self) -> dict[str, Any]:
        """Settings of the backbone that follow from these where they are not given."""
        return {}


@dataclass(frozen=True)
class Moment:
    """Where in the training a step is; every schedule is a function of it."""

    step: int
    steps: int
    steps_per_epoch: int
    phase: str = "joint"
    pairs: int = 1  # of a step, over all processes and micro-batches

    @property
    def progress(self) -> float:
        """From 0 to 1."""
        return self.step / max(1, self.steps)

    @property
    def images_seen(self) -> int:
        """Of each domain, before this step."""
        return self.step * self.pairs

    @property
    def starts_epoch(self) -> bool:
        return self.step % self.steps_per_epoch == 0


@dataclass(frozen=True)
class Player:
    """Parameters that move together. ``learning_rate`` None: ``ratio`` times the run's own rate.

    ``bottleneck_ratio``: by how much faster a bottleneck among them moves, which is new where the rest is pretrained.
    """

    name: str
    parameters: tuple[tuple[str, nn.Parameter], ...]
    ratio: float = 1.0
    learning_rate: float | None = None
    ascends: bool = False
    decays: bool = True
    bottleneck_ratio: float = 1.0


@dataclass(frozen=True)
class TargetPass:
    """The whole target under the evaluation transform: no labels."""

    features_MF: Tensor
    logits_MK: Tensor


@dataclass(frozen=True)
class SourcePass:
    """The training part of the source under the evaluation transform, with its labels."""

    features_NF: Tensor
    logits_NK: Tensor
    labels_N: Tensor


@dataclass(frozen=True)
class Sizes:
    """What a method may know about the data before training."""

    classes: int
    source_images: int
    target_images: int
    steps_per_epoch: int = 1
    batch: int = 1  # pairs that a loss sees


@dataclass(frozen=True)
class SecondView:
    """The target under the backbone before any training.

    ``logits_MK``: of a linear classifier of all known labels on these features, where they are of larger images than
    the model's; None: nothing that the run's probe has not said.
    """

    features_MF: Tensor
    logits_MK: Tensor | None


@dataclass
class Context:
    """What the loop offers between steps: passes over the data are made only when asked for."""

    target_pass: Callable[[], TargetPass]
    source_pass: Callable[[], SourcePass] | None = None
    source_sample: Callable[[], SourcePass] | None = None  # a part of it that evaluations look at anyway
    second_view: Callable[[Tensor | None], SecondView] | None = None  # of the known labels of the target
    check_stop: CheckStop = lambda: None  # for work of minutes that changes nothing before its end
    metrics: dict[str, Tensor | float] = field(default_factory=dict)


class ClassesOfTarget(Protocol):
    """Which classes the target has, and which of its images are of none (``parts/target_classes.py``)."""

    def update(self, target: TargetPass, pinned_M: Tensor | None = None) -> None: ...
    def known(self, target: TargetPass) -> TargetPass: ...
    def source_weights(self, labels_B: Tensor) -> Tensor: ...
    def target_weights(self, index_B: Tensor) -> Tensor: ...
    def state(self) -> dict[str, Tensor | float]: ...
    @property
    def present_K(self) -> Tensor: ...
    @property
    def known_M(self) -> Tensor: ...


def named(module: nn.Module, prefix: str) -> tuple[tuple[str, nn.Parameter], ...]:
    """Trainable parameters with their full names."""
    return tuple((f"{prefix}.{name}", p) for name, p in module.named_parameters() if p.requires_grad)


class Method(nn.Module, ABC):
    """One way to train a model on a labelled source and an unlabelled target."""

    title: ClassVar[str]
    paper: ClassVar[str]
    year: ClassVar[int]
    needs: ClassVar[str]  # what a step costs, in words: passes, extra networks, memory
    not_reproduced: ClassVar[str] = ""  # what of the published method is missing here, where its numbers stand on it
    uses_source: ClassVar[bool] = True
    uses_target: ClassVar[bool] = True
    keeps_head: ClassVar[bool] = False  # the classifier is never trained: it must come from an earlier stage
    chooses_pairs: ClassVar[bool] = False  # whether ``choose_pairs`` decides which images meet
    looks_at_classes: ClassVar[bool] = False  # whether it updates ``target_classes`` itself, with its pseudo labels
    weighs_source: ClassVar[bool] = True  # whether its source classes count by their share in a partial target
    leaves_out_unknown: ClassVar[bool] = False  # whether target images of no known class are kept out of its losses

    average: EMATeacher | None  # of the model's weights over the steps; the loop keeps it up
    target_classes: ClassesOfTarget | None  # None: source and target have the same classes
    pinned_M: Tensor | None  # labels of target images that the user gave, NO_CLASS, -1 elsewhere; None: none given

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self.average = None
        self.target_classes = None
        self.register_buffer("pinned_M", None, persistent=False)

    @property
    def evaluated(self) -> Model:
        """The model that pseudo labels come from, that is judged and shipped: the average, where there is one."""
        return self.model if self.average is None else self.average.model

    def pin(self, places: Sequence[int], labels: Sequence[int], target_images: int) -> None:
        """These target images keep these labels, whatever a method would guess. They come from the data, so no
        checkpoint holds them."""
        if places:
            pinned_M = torch.full((target_images,), -1, dtype=torch.long)
            pinned_M[torch.tensor(places)] = torch.tensor(labels)
            self.pinned_M = pinned_M

    @classmethod
    def images_per_pair(cls, options: Any, progress: float) -> int:
        """Images that a step puts through a transformer for each of its pairs: in all phases, of all networks.

        ``options`` are the method's own, ``progress`` is the share of the steps that is done.
        """
        return cls.uses_source + cls.uses_target

    @abstractmethod
    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        """One step's loss under ``"loss"``, and its parts for the log."""

    def players(self, head_ratio: float) -> list[Player]:
        """Feature extractor and classifier; methods add their own."""
        return [
            Player("feature_extractor", named(self.model.backbone, "model.backbone"), bottleneck_ratio=head_ratio),
            Player("classifier", named(self.model.head, "model.head"), ratio=head_ratio),
        ]

    def phases(self, moment: Moment) -> dict[str, tuple[str, ...] | None]:
        """The phases of a step, in order, each with the players that move in it; None: all of them."""
        return {"joint": None}

    def begin_step(self, moment: Moment, context: Context) -> None:
        """What the loop calls: look at the target's classes at each epoch, then whatever the method does itself."""
        if self.target_classes is not None and not self.looks_at_classes and moment.starts_epoch:
            self.target_classes.update(context.target_pass(), self.pinned_M)
            context.metrics.update(self.target_classes.state())
        self.before_step(moment, context)

    def source_loss(self, logits_BK: Tensor, labels_B: Tensor, smoothing: float) -> Tensor:
        """L_cls, with source classes weighted by their share in the target where that has only some of them."""
        weight_B = None if self.target_classes is None else self.target_classes.source_weights(labels_B)
        return classification_loss(logits_BK, labels_B, smoothing, weight_B)

    def before_step(self, moment: Moment, context: Context) -> None:
        """Between steps: refresh pseudo labels, restore a snapshot, and the like."""

    def choose_pairs(self, moment: Moment, context: Context) -> Tensor:
        """(source index, target index) in the order of use for the epoch, P x 2; used again from the top when short.

        Called at each start of an epoch, and again during one when a run is resumed there: what was chosen at the
        start must then be given back, so it is kept in a buffer.
        """
        raise NotImplementedError

    def after_step(self, moment: Moment) -> None:
        """After the optimiser moved: project, average."""

    def settle_head(self, context: Context) -> bool:
        """Before an evaluation: move the head of ``evaluated`` to where it is judged and shipped; False: it stays.

        Afterwards the training continues with the head as it was, so all candidates are judged alike.
        """
        return False

    def state(self) -> dict[str, Tensor | float]:
        """Slow quantities for the log (concentrations, alpha)."""
        return {}


def check_players(players: Iterable[Player], module: nn.Module) -> None:
    """Every trainable parameter belongs to exactly one player."""
    owned = [id(p) for player in players for _, p in player.parameters]
    trainable = {id(p) for p in module.parameters() if p.requires_grad}
    assert len(owned) == len(set(owned)), "a parameter belongs to two players"
    assert set(owned) == trainable, "a trainable parameter belongs to no player"
