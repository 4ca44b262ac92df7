"""Fixed blocks of positions, and the samples to fill them.

The bits of a forward pass depend on the shape of its block, so a block never depends on what is asked for. A batch is cut at
multiples of the block size, and every block is filled to full size. Asked for one position, for new samples or for all of
them, the block around a position is the same, and so are its outputs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from modyn_dagster.data.samples import Samples
from modyn_dagster.keys import KeyArray, keys_of

#: Positions per forward pass.
BLOCK: Final = 1024

Positions = npt.NDArray[np.int64]


class BatchRange(NamedTuple):
    """Part of one batch that is to be predicted.

    Attributes:
        ordinal: of the batch.
        n_samples: that were ingested with it, deleted ones included.
        wanted: positions, ascending; None: all.
        deleted: positions that can no longer be read; they are never predicted.
    """

    ordinal: int
    n_samples: int
    wanted: Positions | None = None
    deleted: Positions | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """One forward pass: ``uint64[block]`` keys to read (some repeat), and the rows whose outputs are wanted."""

    keys: KeyArray
    rows: Positions


def fixed_blocks(
    ordinal: int, n_samples: int, wanted: Positions | None = None, deleted: Positions | None = None, *, block: int = BLOCK
) -> Iterator[Block]:
    """The blocks of a batch that hold wanted positions, in order; the arguments are those of ``BatchRange``.

    A place behind the batch's end is filled with the batch's last sample, that of a deleted sample with the one before it
    (the block's first sample where there is none before).
    """
    present = np.ones(n_samples, dtype=bool)
    if deleted is not None:
        present[deleted] = False
    asked = present if wanted is None else present & np.isin(np.arange(n_samples), wanted)
    for start in range(0, n_samples, block):
        rows = np.flatnonzero(asked[start : start + block])
        if len(rows):
            available = np.flatnonzero(present[start : start + block])
            if len(available) < block:
                source = np.searchsorted(available, np.arange(block), side="right") - 1
                available = available[np.maximum(source, 0)]
            yield Block(keys_of(ordinal, start + available), rows)


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
                parts.append((block, _take_rows(samples, slice(begin, begin + len(block.keys)))))
                begin += len(block.keys)
            yield parts
        else:
            found = np.unique(keys)
            samples = read(found)
            yield [(block, _take_rows(samples, np.searchsorted(found, block.keys))) for block in group]


def _take_rows(samples: Samples, rows: npt.NDArray[np.int64] | slice) -> Samples:
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
