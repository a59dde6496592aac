"""The JSON of the service: what stands in the OpenAPI description is what is sent."""

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
    """What the model says of one image."""

    model_config = ConfigDict(populate_by_name=True)

    name: str = Field(description="the file's name as it was sent")
    label: str = Field(alias="class")
    probability: float
    entropy: float = Field(description="in nats")
    abstain: bool
    top: list[Scored] = Field(description="the most probable classes, best first")
    attention: AttentionMap | None = None


class Answers(BaseModel):
    """One answer per image, in the order sent."""

    predictions: list[Answer]


class Problem(BaseModel):
    """One line that says what was wrong with the request."""

    detail: str


class Health(BaseModel):
    """The service is up and its model is loaded."""

    status: str = "ok"
    version: str
    backbone: str
    classes: list[str]


def answer(
    name: str, logits_K: Tensor, scores: Tensor | None, trained: TrainedModel, top: int, abstain_below: float
) -> Answer:
    """One image's logits, and its map of scores (rows, columns) if there is one, as what is sent."""
    (said,) = predictions(logits_K[None], trained.classes, trained.temperature, abstain_below)
    assert said.label is not None
    assert said.probability is not None
    assert said.entropy is not None
    return Answer(
        name=as_text(name),
        label=as_text(said.label),
        probability=said.probability,
        entropy=said.entropy,
        abstain=said.abstain,
        top=[Scored(label=as_text(label), probability=probability) for label, probability in said.top(top)],
        attention=None if scores is None else _attention(scores, trained.preprocessing.crop_ratio),
    )


def as_text(name: str) -> str:
    """JSON is UTF-8, the name of a class folder may be anything."""
    return name.encode("utf-8", "backslashreplace").decode()


def _attention(scores: Tensor, crop_ratio: float) -> AttentionMap:
    """The model sees the centre of an image that was squashed to a square, so the region is the same on both axes."""
    margin = (1 - crop_ratio) / 2
    rows, columns = scores.shape
    values = [round(value, 6) for value in scores.flatten().tolist()]
    region = (margin, margin, 1 - margin, 1 - margin)
    return AttentionMap(rows=rows, columns=columns, values=values, region=region)
