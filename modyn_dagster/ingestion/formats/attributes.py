"""Attributes of samples: columns as one JSON object per row, without a Python object per row."""

import json
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from modyn_dagster.errors import DataError


def json_objects(columns: Mapping[str, pa.Array], file: str) -> pa.Array:
    """One JSON text per row (Arrow ``large_string``), with keys in the given order.

    Non-finite numbers become ``null``, timestamps ISO 8601 text. Raises ``DataError`` for a null character, which
    Postgres cannot store.
    """
    parts: list[pa.Array | str] = []
    for name, values in columns.items():
        parts += [f"{', ' if parts else '{'}{json.dumps(name)}: ", _json_values(values, file, name)]
    return pc.binary_join_element_wise(*(_large(part) for part in [*parts, "}", ""]))


def as_bytes(objects: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Offsets ``int64[n + 1]`` and UTF-8 bytes of an array of texts."""
    _, offsets, data = objects.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int64)[objects.offset : objects.offset + len(objects) + 1]
    return bounds, np.frombuffer(data, dtype=np.uint8)


def _large(part: pa.Array | str) -> pa.Array | pa.Scalar:
    return pa.scalar(part, pa.large_string()) if isinstance(part, str) else part.cast(pa.large_string())


def _json_values(values: pa.Array, file: str, name: str) -> pa.Array:
    if pa.types.is_floating(values.type):
        return pc.if_else(pc.is_finite(values), values.cast(pa.string()), "null")
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return _quoted(values, file, name)
    if pa.types.is_timestamp(values.type):
        return pc.coalesce(_in_quotes(values.cast(pa.string())), "null")
    return values.cast(pa.string())


def _quoted(values: pa.Array, file: str, name: str) -> pa.Array:
    control = pc.match_substring_regex(values, r"[\x00-\x1f]").to_numpy(zero_copy_only=False)
    if control.any():
        return _quoted_one_by_one(values, file, name)
    escaped = pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), '"', '\\"')
    return _in_quotes(escaped)


def _in_quotes(values: pa.Array) -> pa.Array:
    quote = pa.scalar('"', values.type)
    return pc.binary_join_element_wise(quote, values, quote, pa.scalar("", values.type))


def _quoted_one_by_one(values: pa.Array, file: str, name: str) -> pa.Array:
    texts = values.to_pylist()
    for row, text in enumerate(texts, 1):
        if "\0" in text:
            raise DataError(file, "an attribute cannot hold a null character", row=row, column=name)
    return pa.array([json.dumps(text, ensure_ascii=False) for text in texts], pa.large_string())
