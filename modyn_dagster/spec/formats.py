"""Specs of sample formats: rows of CSV, JSON, Parquet or binary files, or whole files."""

import math
from contextlib import suppress
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import AfterValidator, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from modyn_dagster.spec.base import Spec

ColumnType = Literal["int64", "float64", "bool", "string"]

#: Fill of a float64 column that stands for a missing number.
NAN: Final = "nan"


class AbsentRule(Spec):
    """Value of a column in the batches whose files lack it."""

    fill: StrictBool | StrictInt | StrictFloat | StrictStr = Field(
        description="Value of every such sample; `nan`: missing number."
    )
    dtype: ColumnType | None = Field(
        None, description="Default: as in `format`, else by the files that have it, else by `fill`; numbers are then float64."
    )

    def value_as(self, dtype: str) -> bool | int | float | str:
        """The fill as a value of a column of rows. Raises ``ValueError`` where the dtype cannot hold it."""
        fill = self.fill
        if dtype == "float64" and fill == NAN:
            return float("nan")
        kinds: dict[str, tuple[type, ...]] = {"int64": (int,), "float64": (int, float), "bool": (bool,), "string": (str,)}
        fits = kinds.get(dtype, ())
        if not isinstance(fill, fits) or isinstance(fill, bool) != (dtype == "bool"):
            raise ValueError(f"is no value of a column of {dtype}")
        if dtype == "int64" and not -(2**63) <= fill < 2**63:  # type: ignore[operator]  # an int, as fits says
            raise ValueError("does not fit into int64")
        return float(_held(fill, np.dtype(np.float64))) if dtype == "float64" else fill

    def filled_field(self, dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[Any]]:
        """The fill as a field of a record, of shape (). Raises ``ValueError`` where the dtype cannot hold it.

        A fraction is rounded to the nearest number of the dtype.
        """
        base = dtype.subdtype[0] if dtype.subdtype is not None else dtype
        fill = float("nan") if self.fill == NAN and base.kind == "f" else self.fill
        kinds: dict[str, Any] = {"b": bool, "i": int, "u": int, "f": (int, float), "S": str, "U": str, "M": str}
        if not isinstance(fill, kinds.get(base.kind, ())) or isinstance(fill, bool) != (base.kind == "b"):
            raise ValueError(f"is no value of a field of {base}")
        if base.kind in "iuf":
            return _held(fill, base)
        try:
            value = np.array(fill, dtype=base)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"is no value of a field of {base}: {error}") from error
        if base.kind in "SU" and str(value.astype(str)) != fill:
            raise ValueError(f"does not fit into a field of {base}")
        return value


def _held(fill: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    """A number in a dtype. Raises ``ValueError`` for an integer that it would change, and for a fraction out of its range."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"), suppress(OverflowError):
            value = np.array(float(fill)).astype(dtype)
            exact = not isinstance(fill, int) or (np.isfinite(value) and int(value) == fill)
            if exact and np.isfinite(value) == math.isfinite(fill):
                return value
    elif np.iinfo(dtype).min <= fill <= np.iinfo(dtype).max:
        return np.array(fill, dtype=dtype)
    raise ValueError(f"does not fit into {dtype}")


def _check_delimiter(delimiter: str) -> str:
    if not delimiter.isascii() or delimiter in '"\r\n':
        raise ValueError("must be one ASCII character, not a quote or a line break")
    return delimiter


class CsvFormat(Spec):
    """Comma-separated rows (RFC 4180), UTF-8, one header line."""

    kind: Literal["csv"]
    delimiter: Annotated[str, Field(min_length=1, max_length=1), AfterValidator(_check_delimiter)] = ","
    columns: dict[str, ColumnType] = Field({}, description="Dtypes to pin; others are found in the first batch.")


class JsonlFormat(Spec):
    """One flat JSON object per line, UTF-8."""

    kind: Literal["jsonl"]
    columns: dict[str, ColumnType] = Field({}, description="Dtypes to pin; others are found in the first batch.")


class ParquetFormat(Spec):
    """Parquet; converted once into fixed-width rows of a local shard. Fields of structs are columns by dotted paths."""

    kind: Literal["parquet"]


def _check_dtype(fields: list[tuple[str, str]]) -> list[tuple[str, str]]:
    try:
        dtype = np.dtype([(name, code) for name, code in fields])
    except (TypeError, ValueError) as error:
        raise ValueError(f"must be NumPy fields [[name, dtype], ...]: {error}") from error
    if dtype.hasobject or dtype.itemsize == 0:
        raise ValueError("must have fixed-width fields, not objects")
    return fields


class FixedRowsFormat(Spec):
    """Binary records of a NumPy structured dtype, one after the other."""

    kind: Literal["fixed_rows"]
    dtype: Annotated[list[tuple[str, str]], AfterValidator(_check_dtype)] = Field(
        description="Fields in file order: [[name, NumPy dtype string], ...].", min_length=1
    )
    header_bytes: Annotated[int, Field(ge=0)] = 0


class FilesFormat(Spec):
    """One file per sample; its bytes are the sample."""

    kind: Literal["files"]
    suffixes: list[str] = Field(description="File names that are samples, for example ['.png'].", min_length=1)
    packed_bytes: Annotated[int, Field(ge=0)] = Field(
        1 << 20,
        description="Files up to this size are packed into a shard and not needed afterwards; larger ones of a local root stay "
        "where they are. 0 packs no local file.",
    )


Format = Annotated[CsvFormat | JsonlFormat | ParquetFormat | FixedRowsFormat | FilesFormat, Field(discriminator="kind")]
