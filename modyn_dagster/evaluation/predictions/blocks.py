"""Fixed blocks of positions, and the samples that fill them.

The bits of a forward pass depend on the shape of its block, so a block never depends on the positions requested. A batch is cut
at multiples of the block size, and every block is filled to full size. The block around a position is the same for a request of
one position, of new samples or of all samples, and so are its outputs.
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
    """Part of one batch to predict.

    Attributes:
        ordinal: of the batch.
        n_samples: ingested with the batch, deleted ones included.
        positions: requested positions, ascending; None: all.
        deleted: positions that can no longer be read; they are never predicted.
    """

    ordinal: int
    n_samples: int
    positions: Positions | None = None
    deleted: Positions | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """One forward pass: keys to read, ``uint64[block]`` (some repeat), and the rows whose outputs are requested."""

    keys: KeyArray
    rows: Positions


def fixed_blocks(
    ordinal: int, n_samples: int, positions: Positions | None = None, deleted: Positions | None = None, *, block: int = BLOCK
) -> Iterator[Block]:
    """Blocks of a batch that hold requested positions, in order. Arguments as in ``BatchRange``.

    Positions behind the end of the batch are filled with its last sample, deleted ones with the sample before them, or with the
    first sample of the block if there is none before.

    >>> [block.rows for block in fixed_blocks(0, 5, np.array([1, 4]), block=3)]
    [array([1]), array([1])]
    """
    present = np.ones(n_samples, dtype=bool)
    if deleted is not None:
        present[deleted] = False
    requested = present if positions is None else present & np.isin(np.arange(n_samples), positions)
    for start in range(0, n_samples, block):
        rows = np.flatnonzero(requested[start : start + block])
        if len(rows):
            available = np.flatnonzero(present[start : start + block])
            if len(available) < block:
                source = np.searchsorted(available, np.arange(block), side="right") - 1
                available = available[np.maximum(source, 0)]
            yield Block(keys_of(ordinal, start + available), rows)


def count_blocks(n_samples: int, positions: Positions | None = None, deleted: Positions | None = None) -> int:
    """Count the blocks that ``fixed_blocks`` yields.

    >>> count_blocks(5000, np.array([3, 7, 4000]), np.array([4000]))
    1
    """
    requested = np.ones(n_samples, dtype=bool) if positions is None else np.zeros(n_samples, dtype=bool)
    requested[slice(0) if positions is None else positions] = True
    if deleted is not None:
        requested[deleted] = False
    return len(np.unique(np.flatnonzero(requested) // BLOCK))


#: Blocks per read. Outputs do not depend on it; record batches of exact prediction files do.
READ_BLOCKS: Final = 16

Read = Callable[[KeyArray], Samples]


def read_blocks(read: Read, blocks: Iterable[Block]) -> Iterator[list[tuple[Block, Samples]]]:
    """Groups of blocks, each with the samples of all its keys; a sample that fills several rows is read once."""
    remaining = iter(blocks)
    while group := list(islice(remaining, READ_BLOCKS)):
        keys = np.concatenate([block.keys for block in group])
        if (keys[1:] > keys[:-1]).all():
            samples, begin = read(keys), 0
            parts = []
            for block in group:
                parts.append((block, _take_rows(samples, slice(begin, begin + len(block.keys)))))
                begin += len(block.keys)
            yield parts
        else:
            distinct = np.unique(keys)
            samples = read(distinct)
            yield [(block, _take_rows(samples, np.searchsorted(distinct, block.keys))) for block in group]


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
