"""The JSON of the service: what stands in the OpenAPI description is what is sent."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


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
