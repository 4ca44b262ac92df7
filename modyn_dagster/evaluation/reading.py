"""The samples of fixed blocks, a bounded number at a time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.blocks import Block
from modyn_dagster.ingestion.samples import Samples
from modyn_dagster.keys import KeyArray

#: Blocks per read; no result depends on it.
_READ_BLOCKS: Final = 16

Read = Callable[[KeyArray], Samples]


def read_blocks(read: Read, blocks: Iterable[Block]) -> Iterator[list[tuple[Block, Samples]]]:
    """Some blocks at once, each with the samples of all its keys; a sample that fills several places is read once."""
    remaining = iter(blocks)
    while group := list(islice(remaining, _READ_BLOCKS)):
        keys = np.concatenate([block.keys for block in group])
        if (keys[1:] > keys[:-1]).all():
            samples, begin = read(keys), 0
            parts = []
            for block in group:
                parts.append((block, _take(samples, slice(begin, begin + len(block.keys)))))
                begin += len(block.keys)
            yield parts
        else:
            found = np.unique(keys)
            samples = read(found)
            yield [(block, _take(samples, np.searchsorted(found, block.keys))) for block in group]


def _take(samples: Samples, rows: npt.NDArray[np.int64] | slice) -> Samples:
    def of(column: npt.NDArray[Any] | None) -> Any:
        return None if column is None else column[rows]

    return Samples(
        keys=samples.keys[rows],
        times=samples.times[rows],
        labels=of(samples.labels),
        targets=of(samples.targets),
        columns={name: column[rows] for name, column in samples.columns.items()},
        blobs=None if samples.blobs is None else _blobs(samples.blobs, rows),
    )


def _blobs(blobs: Sequence[bytes], rows: npt.NDArray[np.int64] | slice) -> list[bytes]:
    return list(blobs[rows]) if isinstance(rows, slice) else [blobs[row] for row in rows]
