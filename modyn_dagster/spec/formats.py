"""Specs of sample formats: rows of CSV, JSON, Parquet or binary files, or whole files."""

from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field

from modyn_dagster.spec.base import Spec

ColumnType = Literal["int64", "float64", "bool", "string"]


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
    """Parquet with flat columns; converted once into fixed-width rows of a local shard."""

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
