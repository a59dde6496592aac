"""The JSON responses of the service, as they appear in its OpenAPI description."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from pmtrans.inference.prediction import predictions
from pmtrans.run.model_folder import TrainedModel


class Scored(BaseModel):
    """A class and its calibrated probability."""

    model_config = ConfigDict(populate_by_name=True)

    label: str = Field(alias="class")
    probability: float


class AttentionMap(BaseModel):
    """Where the model looked: a grid over ``region`` of the upright image (left, top, right, bottom; 0 to 1)."""

    rows: int
    columns: int
    values: list[float] = Field(description="row by row; they sum to 1")
    region: tuple[float, float, float, float]


class Answer(BaseModel):
    """The prediction for one image."""

    model_config = ConfigDict(populate_by_name=True)

    name: str = Field(description="the file name, as sent")
    label: str = Field(alias="class")
    probability: float
    entropy: float = Field(description="in nats")
    abstain: bool
    top: list[Scored] = Field(description="the most probable classes, best first")
    unknown_score: float | None = Field(
        None, description="where the model knows images of no class: above 0.5 the class is `unknown`"
    )
    attention: AttentionMap | None = None


class Answers(BaseModel):
    """One prediction per image, in the order sent."""

    predictions: list[Answer]


class Problem(BaseModel):
    """An error: one line that says what is wrong with the request."""

    detail: str


class Health(BaseModel):
    """The service is alive, and what it serves."""

    status: str = "ok"
    version: str
    backbone: str
    classes: list[str]
    needs_key: bool = Field(False, description="whether predictions need an API key")


class Ready(BaseModel):
    """The model has made a prediction, and its last pass succeeded."""

    status: str = "ready"


def answer(
    name: str, logits_K: Tensor, scores: Tensor | None, trained: TrainedModel, top: int, abstain_below: float
) -> Answer:
    """The response for one image, from its logits and its attention scores (rows, columns), if there are any."""
    (prediction,) = predictions(logits_K[None], trained.classes, trained.temperature, abstain_below, trained.unknown)
    assert prediction.label is not None
    assert prediction.probability is not None
    assert prediction.entropy is not None
    return Answer(
        name=as_text(name),
        label=as_text(prediction.label),
        probability=prediction.probability,
        entropy=prediction.entropy,
        abstain=prediction.abstain,
        top=[Scored(label=as_text(label), probability=probability) for label, probability in prediction.top(top)],
        unknown_score=prediction.unknown_score,
        attention=None if scores is None else _attention(scores, trained.preprocessing.crop_ratio),
    )


def as_text(name: str) -> str:
    """Valid UTF-8, as JSON requires: the name of a class folder may hold any bytes."""
    return name.encode("utf-8", "backslashreplace").decode()


def _attention(scores: Tensor, crop_ratio: float) -> AttentionMap:
    """The model sees the centre crop of an image resized to a square, so the margin is the same on both axes."""
    margin = (1 - crop_ratio) / 2
    rows, columns = scores.shape
    values = [round(value, 6) for value in scores.flatten().tolist()]
    region = (margin, margin, 1 - margin, 1 - margin)
    return AttentionMap(rows=rows, columns=columns, values=values, region=region)
