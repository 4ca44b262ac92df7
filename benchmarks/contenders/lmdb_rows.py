"""LMDB: one read transaction, a ``get`` per key; keys are big-endian positions, values the rows."""

from collections.abc import Sequence
from pathlib import Path

import lmdb
from torch import Tensor

from benchmarks.contenders.library import Library, Positions, Take, batch_of_rows, rows_of

_MAP_BYTES = 1 << 34


def write(paths: Sequence[Path], folder: Path) -> None:
    """One environment, filled in key order."""
    with lmdb.open(str(folder / "rows.lmdb"), map_size=_MAP_BYTES, sync=False) as env, env.begin(write=True) as txn:
        for key, row in enumerate(rows_of(paths)):
            txn.put(key.to_bytes(8, "big"), row, append=True)


def open_rows(folder: Path) -> Take:
    """Read-only, without a lock file, without the kernel's read-ahead: what its documentation says for random reads."""
    env = lmdb.open(str(folder / "rows.lmdb"), map_size=_MAP_BYTES, readonly=True, lock=False, readahead=False)

    def take(positions: Positions) -> dict[str, Tensor]:
        with env.begin(buffers=True) as txn:
            # Big-endian keys of all positions at once, cut into eights.
            keys = positions.astype(">u8").tobytes()
            return batch_of_rows(txn.get(keys[i : i + 8]) for i in range(0, len(keys), 8))

    return take


LIBRARY = Library("lmdb", write, open_rows)
