"""Fixed blocks of positions: the bits of a forward pass depend on the block, so a block never depends on what is asked.

A batch is cut at multiples of the block size, and every block is filled to full size. Asked for one position, for what is
new, or for everything: the block around a position is the same, and so are its outputs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

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
