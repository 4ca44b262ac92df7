"""Specs of a model's features: columns by name, dtype or pattern, encodings of text, and values for missing numbers."""

from typing import Annotated, Final, Literal, Self

import numpy as np
from pydantic import AfterValidator, Field, FiniteFloat, PositiveInt, StringConstraints, model_validator

from modyn_dagster.spec.base import Spec

#: Largest number that a row of float32 holds exactly, as do all below it.
_MOST: Final = 1 << 24
#: Columns that one column may become.
Width = Annotated[int, Field(ge=1, le=65_536)]
#: Rows of a table.
Rows = Annotated[int, Field(ge=1, lt=_MOST)]


def _check_dtype(name: str) -> str:
    if name in ("numeric", "string"):
        return name
    try:
        found = np.dtype(name)
    except TypeError:
        found = np.dtype(object)
    if found.kind not in "biuf" or str(found) != name:
        raise ValueError("must be numeric, string, or a dtype of a column: int64, float64, bool, float32, uint8, ...")
    return name


class SelectorSpec(Spec):
    """Columns by dtype and pattern, in the order of the dataset. Time, id, label and attributes are none of them."""

    dtype: Annotated[str, AfterValidator(_check_dtype)] | None = Field(
        None, description="`numeric` (bool, integers and floats), `string`, or one dtype: int64, float64, bool, ..."
    )
    pattern: str | None = Field(
        None, min_length=1, description="Of the name: `*` stands for any text, `?` for one character, `[ab]` for one of these."
    )
    without: list[str] = Field([], description="Names or patterns of columns to leave out.")

    @model_validator(mode="after")
    def _selects(self) -> Self:
        if self.dtype is None and self.pattern is None:
            raise ValueError("give `dtype`, `pattern` or both")
        return self


#: Columns in their order: names, and selectors of several.
ColumnList = Annotated[
    list[Annotated[str, StringConstraints(min_length=1)] | SelectorSpec],
    Field(min_length=1, description="In this order; a column of several values counts as that many."),
]


def require_no_repeats(columns: ColumnList, what: str) -> None:
    """Raise ``ValueError`` if a name stands twice in a list of columns."""
    names = [column for column in columns if isinstance(column, str)]
    if len(set(names)) != len(names):
        raise ValueError(f"{what} must not repeat")


_MIN_COUNT: Final = Field(1, description="Values of fewer samples of the training set are unknown.")


class OneHotSpec(Spec):
    """A column for each value of the training set, and one for unknown values."""

    kind: Literal["one_hot"]
    max_values: Width = Field(100, description="Bound of the number of values.")
    min_count: PositiveInt = _MIN_COUNT
    beyond: Literal["refuse", "unknown"] = Field(
        "refuse", description="With more values: fail the training, or keep those of most samples and let the rest be unknown."
    )


class HashSpec(Spec):
    """A column for each of some buckets; values share buckets. Nothing is fitted, so any value to come has its place."""

    kind: Literal["hash"]
    buckets: Width


class _TableSpec(Spec):
    """Numbers of values: 0 for unknown ones, 1 and so on for those of the training set; or those of buckets, from 0 on."""

    max_values: Rows = Field(10_000, description="Bound of the number of values.")
    min_count: PositiveInt = _MIN_COUNT
    beyond: Literal["refuse", "unknown"] = Field(
        "unknown", description="With more values: fail the training, or keep those of most samples and let the rest be unknown."
    )
    buckets: Rows | None = Field(None, description="Hash values into so many buckets instead of keeping a vocabulary.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.buckets is not None and (given := self.model_fields_set & {"max_values", "min_count", "beyond"}):
            raise ValueError(f"buckets need no vocabulary: leave {', '.join(sorted(given))} out")
        return self


class EmbeddingSpec(_TableSpec):
    """A vector for each value, learnt with the model. Of built-in models `mlp` and `logistic_regression` take them."""

    kind: Literal["embedding"]
    dimension: Annotated[int, Field(ge=1, le=4_096)] = Field(16, description="Width of the vectors.")


class NumberSpec(_TableSpec):
    """The number of each value: for groups of integers, whose model has tables of its own, and for trees."""

    kind: Literal["number"]


EncodingSpec = Annotated[OneHotSpec | HashSpec | EmbeddingSpec | NumberSpec, Field(discriminator="kind")]


class ImputeSpec(Spec):
    """A value in place of missing numbers (NaN or infinite)."""

    by: Literal["mean", "median", "constant"] = Field(
        "mean", description="Mean or median of the training set, without its missing numbers; or `value`."
    )
    value: FiniteFloat | None = Field(None, description="Of `by: constant`.")
    indicator: bool = Field(False, description="Add a column that is 1 where the number was missing, else 0.")

    @model_validator(mode="after")
    def _value_fits(self) -> Self:
        if (self.by == "constant") != (self.value is not None):
            raise ValueError("`by: constant` needs `value`, and nothing else does")
        return self
