"""Base of strategies that keep a part of the window."""

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from modyn_dagster.spec.base import Spec


class Sized(Spec):
    """A strategy that keeps a part: a share of the window (default: all), rounded down but never to nothing, or a number."""

    ratio: Annotated[float, Field(gt=0, le=1)] | None = None
    size: PositiveInt | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.size is not None and self.ratio is not None:
            raise ValueError("give either ratio or size")
        return self


class Weighing(Sized):
    """A strategy that prefers some samples on purpose."""

    weights: Literal["unbiased", "equal"] = Field(
        "unbiased",
        description="Weigh each sample by the inverse of its chance, so that weighted sums stay those of the window; or all "
        "alike, so that the model is fitted to the chosen mixture.",
    )
