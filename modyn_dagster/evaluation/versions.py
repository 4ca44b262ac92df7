"""What the value of a cell follows from, as short texts: two cells with equal addresses have equal values."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.cells import in_order
from modyn_dagster.evaluation.intervals import Interval
from modyn_dagster.evaluation.predictions import Predictions
from modyn_dagster.keys import ordinals_of

_BYTES = 16


def data_versions(
    predictions: Predictions, intervals: Sequence[Interval], dataset: str, contents: Mapping[int, str | None]
) -> list[str]:
    """A digest of the samples that are judged in each interval: which they are, when they were and what is true of them.

    A sample more, a deleted one less or another label make another version; the order of the predictions does not, nor
    do the samples of other intervals.

    Args:
        predictions: of the samples; what a model said of them does not count.
        intervals: of ``datetime64`` times.
        dataset: whose keys they are; keys of two datasets may be equal.
        contents: by ordinal of the batch a digest of what was ingested with it.
    """
    ordered = in_order(predictions)
    keys, times, truth = ordered.keys, ordered.times, ordered.truth
    ordinals = ordinals_of(keys)
    starts, ends = (
        np.searchsorted(times, np.array([getattr(interval, side) for interval in intervals], dtype="datetime64[us]"))
        for side in ("start", "end")
    )
    versions = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        part = slice(start, max(start, end))
        batches = [f"{ordinal} {contents.get(ordinal)}" for ordinal in np.unique(ordinals[part]).tolist()]
        versions.append(_digest([dataset, *batches], keys[part], times[part].view(np.int64), truth[part]))
    return versions


def cell_address(
    model: str, interval: Interval, metric: str, data: str, settings: Sequence[object] = (), *, code: str = ""
) -> str:
    """The address of one cell: 32 hexadecimal digits, and behind a dot ``code`` where there is one.

    Args:
        model: names what predicts: a hash of its weights and of how they are used.
        interval: its ends; which model is active there does not matter.
        metric: a name of ``METRICS`` or an import path.
        data: a version of the samples.
        settings: what else the value follows from, for example how few samples are too few.
        code: what the metric does (``metric_code``); it can be read off the address (``code_of``).
    """
    found = _digest([model, str(interval.start), str(interval.end), metric, data, *map(repr, settings)])
    return f"{found}.{code}" if code else found


def code_of(address: str) -> str:
    """The code of the metric that a cell of this address was computed by; empty where it is none of one's own."""
    return address.partition(".")[2]


def _digest(texts: Sequence[str], *arrays: npt.NDArray[np.generic]) -> str:
    digest = blake2b(digest_size=_BYTES)
    for text in texts:
        content = text.encode()
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
