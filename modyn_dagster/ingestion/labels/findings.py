"""Findings in label files: rows that a person should look at, by kind, each with file, row and id."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fastpath.array_types import Int64Array
from modyn_dagster.ingestion.batches.placed_ids import PlacedIds

#: Kinds, and what they mean.
UNKNOWN: Final = "unknown"
TWICE: Final = "twice"
EARLY: Final = "early"
DELETED: Final = "deleted"
REPEATED: Final = "repeated"
MEANINGS: Final[Mapping[str, str]] = {
    UNKNOWN: "name no sample yet: they wait for it",
    TWICE: "have an id that an earlier row of their file has: the latest time counts",
    EARLY: "were known before the time of their sample",
    DELETED: "are of deleted samples: left out",
    REPEATED: "repeat a row of the batch with the same id, label and time: left out",
}
#: Rows of a kind that are named.
_NAMED: Final = 20
_DELAYS: Final[Sequence[tuple[str, int]]] = (
    ("before the sample", 0),
    ("under 1 min", 60),
    ("under 1 h", 3600),
    ("under 1 d", 86_400),
    ("under 7 d", 7 * 86_400),
    ("under 30 d", 30 * 86_400),
    ("under 90 d", 90 * 86_400),
    ("under 1 y", 365 * 86_400),
)


def found(places: PlacedIds, **rows: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """Number and first rows of each kind that occurs, as JSON.

    Args:
        places: of n rows.
        rows: ``bool[n]`` by kind.
    """
    findings = {}
    for kind, mask in rows.items():
        chosen = np.flatnonzero(mask)
        if len(chosen):
            named = [_named(places, int(row)) for row in chosen[:_NAMED]]
            findings[kind] = {"rows": len(chosen), "first": named}
    return findings


def repeats_in_file(places: PlacedIds) -> npt.NDArray[np.bool_]:
    """Rows whose id an earlier row of the same file has, ``bool[n]``."""
    codes = places.ids.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return _repeated(codes * len(places.paths) + places.path_of)


def _repeated(values: Int64Array) -> npt.NDArray[np.bool_]:
    _, first = np.unique(values, return_index=True)
    mask = np.ones(len(values), dtype=bool)
    mask[first] = False
    return mask


def repeated_rows(places: PlacedIds, digests: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Rows that equal an earlier one of the batch in id, value and time, ``bool[n]``."""
    codes = places.ids.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    _, content = np.unique(digests, return_inverse=True)
    return _repeated(content.astype(np.int64) * (int(codes.max(initial=0)) + 1) + codes)


def delay_histogram(delays: npt.NDArray[np.timedelta64]) -> list[list[Any]]:
    """Number of labels by the time from sample to label: ``[[text, number], ...]``, from short to long, with all classes.

    >>> delay_histogram(np.array([-5, 30, 90_000], "timedelta64[s]"))[0]
    ['before the sample', 1]
    """
    seconds = delays.astype("timedelta64[us]").astype(np.int64) / 1e6
    ends = np.array([end for _, end in _DELAYS])
    counts = np.bincount(np.searchsorted(ends, seconds, side="right"), minlength=len(_DELAYS) + 1)
    texts = [*(text for text, _ in _DELAYS), "1 y and more"]
    return [[text, int(n)] for text, n in zip(texts, counts, strict=True)]


def label_counts(values: npt.NDArray[Any], names: Sequence[str]) -> dict[str, int]:
    """Number of known labels by class name, or by the decimal class index; empty for targets."""
    if values.dtype != np.int64:
        return {}
    numbers, counts = np.unique(values, return_counts=True)
    return {names[value] if names else str(value): int(n) for value, n in zip(numbers.tolist(), counts)}


def _named(places: PlacedIds, row: int) -> dict[str, Any]:
    return {"file": places.paths[places.path_of[row]], "row": int(places.rows[row]) + 1, "id": places.ids[row].as_py()}
