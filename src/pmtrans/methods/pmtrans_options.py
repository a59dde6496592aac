"""The switches of PMTrans: every ablation of the paper is a configuration of these."""

from __future__ import annotations

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


class PMTransOptions(Options):
    """``preset`` fills in what is not given: ``paper`` (our reading) or ``reference`` (the authors' code)."""

    preset: Literal["paper", "reference"] = Field(
        "paper", description="paper: our reading of the paper; reference: the authors' code"
    )
    mixing: MixingName = Field("patchmix", description="how the two domains are mixed")
    beta: Literal["ascend", "descend", "fixed"] = Field(
        "ascend", description="how player P moves; also fixed(b,g) for a fixed Beta of these concentrations"
    )
    beta_start: tuple[float, float] = Field((1.0, 1.0), description="first concentrations b, g")
    beta_floor: float = Field(0.3, ge=0, description="lower bound of both concentrations")
    beta_ceiling: float = Field(5.0, gt=0, description="upper bound of both concentrations")
    beta_learning_rate: float | None = Field(3e-3, gt=0, description="P's own rate; null: the classifier's")
    ratio_weighs: Literal["source", "target"] = Field("source", description="whose weight the Beta sample is")
    attention: Literal["scores", "uniform", "softmaxed"] = Field(
        "scores",
        description="patch weights for labels; softmaxed: the authors' code (source softmaxed twice, target even)",
    )
    feature_loss: bool = Field(True, description="mixup loss in the feature space")
    label_loss: bool = Field(True, description="mixup loss in the label space")
    class_information: bool = Field(False, description="target label similarity from pseudo labels, not identity")
    temperature: float = Field(1.0, gt=0, description="temperature of the cosine similarities")
    positives: Positives = Field("mean", description="rows of label similarity: mean (sum to 1) or sum")
    alpha: TradeoffKind = Field("learned", description="weight of the game: learned, ramp, fixed, softplus")
    alpha_value: float = Field(1.0, gt=0, description="start of learned, top of ramp, value of fixed")
    pseudo_labels: Literal["kmeans", "neighbours"] = Field("kmeans", description="where target labels come from")
    refresh_steps: int | None = Field(None, ge=1, description="steps between two k-means; null: an epoch")
    reuse_features: bool = Field(
        False, description="k-means on what training saw of the target, after one full pass, not a pass each time"
    )
    mcc: float = Field(0.0, ge=0, description="weight of an added minimum class confusion; 0: none")
    mic: float = Field(0.0, ge=0, description="weight of an added masked image consistency; 0: none")

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        given = {**(REFERENCE if given.get("preset") == "reference" else {}), **given}
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
        if self.reuse_features and self.pseudo_labels != "kmeans":
            raise ValueError("reuse_features is for pseudo_labels=kmeans; neighbours keep a bank of their own")
        return self
