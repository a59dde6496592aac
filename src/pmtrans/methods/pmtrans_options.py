"""The switches of PMTrans: every ablation of the paper is a configuration of these."""

from __future__ import annotations

import math
import re
from typing import Any, Literal

from pydantic import Field, model_validator

from pmtrans.losses.mixup_feature import Positives
from pmtrans.losses.tradeoff import TradeoffKind
from pmtrans.methods.method import Options
from pmtrans.mixing import MixingName

REFERENCE: dict[str, Any] = {  # the authors' public code, as far as it differs from the paper
    "beta": "descend",
    "beta_start": (1.3133, 1.3133),
    "beta_floor": 0.0,
    "beta_learning_rate": None,
    "ratio_weighs": "target",
    "attention": "softmaxed",
    "positives": "sum",
    "alpha": "softplus",
    "pseudo_labels": "neighbours",
    "head": "mlp",
}


BEST: dict[str, Any] = {  # what goes beyond the paper, each with its reason; measured part by part in docs/results.md
    "align_head": "lagging",  # the classifier lags behind its own features: clusters of the target are right more often
    "second_view": True,  # training on the source costs some clusters, which the untrained backbone still has
    "refit_head": True,  # near images share a label: more often right than the classifier, whose head follows late
    "information": 0.1,  # the one loss that touches a pure target image: its features are there already
    "alpha": "fixed",  # a learned weight hardly moves in a short run
    "beta_pace": 0.02,  # P moves as far in a short epoch as in a long one
}

PRESETS: dict[str, dict[str, Any]] = {"best": BEST, "paper": {}, "reference": REFERENCE}


class PMTransOptions(Options):
    """``preset`` fills in what is not given; the defaults below are those of ``paper``."""

    preset: Literal["best", "paper", "reference"] = Field(
        "best",
        description="best: the paper's game and what raised its accuracy in our measurements; paper: our reading of "
        "the paper; reference: the authors' code",
    )
    mixing: MixingName = Field("patchmix", description="how the two domains are mixed")
    beta: Literal["ascend", "descend", "fixed"] = Field(
        "ascend", description="how player P moves; also fixed(b,g) for a fixed Beta of these concentrations"
    )
    beta_start: tuple[float, float] = Field((1.0, 1.0), description="first concentrations b, g")
    beta_floor: float = Field(0.3, ge=0, description="lower bound of both concentrations")
    beta_ceiling: float = Field(5.0, gt=0, description="upper bound of both concentrations")
    beta_learning_rate: float | None = Field(3e-3, gt=0, description="P's own rate; null: the classifier's")
    beta_pace: float | None = Field(
        None, gt=0, le=1, description="P's rate in its own units: how far the mean ratio may move in an epoch"
    )
    ratio_weighs: Literal["source", "target"] = Field("source", description="whose weight the Beta sample is")
    attention: Literal["scores", "uniform", "softmaxed"] = Field(
        "scores",
        description="patch weights for labels; softmaxed: the authors' code (source softmaxed twice, target even)",
    )
    feature_loss: bool = Field(True, description="mixup loss in the feature space")
    label_loss: bool = Field(True, description="mixup loss in the label space")
    class_information: bool = Field(False, description="target label similarity from pseudo labels, not identity")
    temperature: float = Field(1.0, gt=0, description="temperature of the cosine similarities")
    feature_weight: float = Field(1.0, gt=0, description="weight of the loss in the feature space, inside alpha")
    positives: Positives = Field("mean", description="rows of label similarity: mean (sum to 1) or sum")
    alpha: TradeoffKind = Field("learned", description="weight of the game: learned, ramp, fixed, softplus")
    alpha_value: float = Field(1.0, gt=0, description="start of learned, top of ramp, value of fixed")
    alpha_learning_rate: float | None = Field(
        1e-2, gt=0, description="own rate of a learned alpha; null: the classifier's"
    )
    align_head: Literal["never", "lagging", "always"] = Field(
        "never",
        description="before the first step, fit the classifier to source and target with the features fixed; lagging: "
        "where it disagrees with their clusters on more than a fifth of the target",
    )
    refit_head: bool = Field(
        False,
        description="before it is judged or shipped, the classifier is fitted to labels propagated over its features, "
        "unless it begins in agreement with its clusters",
    )
    second_view: bool = Field(
        False,
        description="target labels are read off the features of the untrained backbone too, side by side, "
        "unless the classifier begins in agreement with its clusters",
    )
    second_view_size: Literal["pretrained", "same"] = Field(
        "pretrained",
        description="images of the second view: as large as those of the backbone's pretrained weights, where that is "
        "more than data.image_size, or the same",
    )
    pseudo_labels: Literal["kmeans", "propagation", "transport", "neighbours"] = Field(
        "kmeans",
        description="target labels: clusters, predictions spread over near images, optimal transport to classes of "
        "the shares under `prior`, or the authors' bank",
    )
    prior: Literal["estimated", "uniform"] = Field(
        "estimated", description="class balance of the target for pseudo_labels=transport: its own, or all equal"
    )
    refresh_steps: int | None = Field(None, ge=1, description="steps between two labellings; null: an epoch")
    reuse_features: bool = Field(
        False, description="label from what training saw of the target, after one full pass, not a pass each time"
    )
    confidence: bool = Field(False, description="pseudo labels count by their confidence, not all the same")
    information: float = Field(0.0, ge=0, description="weight of an added information maximisation; 0: none")
    nuclear_norm: float = Field(0.0, ge=0, description="weight of an added batch nuclear norm; 0: none")
    mcc: float = Field(0.0, ge=0, description="weight of an added minimum class confusion; 0: none")
    separation: float = Field(
        0.1,
        ge=0,
        description="with data.target_classes=open, weight of keeping unknown images from looking like a class",
    )
    mic: float = Field(0.0, ge=0, description="weight of an added masked image consistency; 0: none")

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        filled = dict(PRESETS.get(str(given.get("preset", "best")), {}))
        rate = cls.model_fields["beta_learning_rate"].default
        if given.get("beta_learning_rate", rate) != rate:  # the same rate in other units: what is given counts
            filled.pop("beta_pace", None)
        given = {**filled, **given}
        fixed = re.fullmatch(r"fixed\(\s*([\d.]+)\s*,\s*([\d.]+)\s*\)", str(given.get("beta", "")))
        if fixed:
            given |= {"beta": "fixed", "beta_start": (float(fixed[1]), float(fixed[2]))}
        return given

    @model_validator(mode="after")
    def _fits_together(self) -> PMTransOptions:
        for value in self.beta_start:
            if not self.beta_floor < value < self.beta_ceiling:
                raise ValueError(
                    f"beta_start {value} is not between beta_floor {self.beta_floor} "
                    f"and beta_ceiling {self.beta_ceiling}"
                )
        if self.pseudo_labels == "neighbours":
            if self.reuse_features:
                raise ValueError("reuse_features is not for pseudo_labels=neighbours, which keep a bank of their own")
            if self.confidence:
                raise ValueError("confidence is not for pseudo_labels=neighbours, which have one of their own")
        return self

    def of_backbone(self) -> dict[str, Any]:
        """The authors' code looks at the class token of a distilled DeiT alone."""
        return {"distillation_token": False} if self.preset == "reference" else {}

    def added_weights(self) -> dict[str, float]:
        """Of the losses on the target alone, by their names in the log."""
        return {
            "class_confusion": self.mcc,
            "information": self.information,
            "nuclear_norm": self.nuclear_norm,
            "masked_consistency": self.mic,
        }

    def beta_rate(self, steps_per_epoch: int) -> float | None:
        """P's learning rate; None: the classifier's.

        A step of Adam moves a raw parameter by at most its rate r. With b = floor + softplus(raw) the mean ratio
        b / (b + g) then moves by at most r (b' g + b g') / (b + g)^2, where b' = 1 - exp(floor - b).
        """
        if self.beta_pace is None:
            return self.beta_learning_rate
        b, g = self.beta_start
        slope_b, slope_g = (-math.expm1(self.beta_floor - value) for value in (b, g))
        return self.beta_pace / steps_per_epoch * (b + g) ** 2 / (slope_b * g + b * slope_g)
