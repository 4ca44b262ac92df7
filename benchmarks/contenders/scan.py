"""NumPy baselines on the same files without keys: read them in order, or index one memory map."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor

from benchmarks.rows import BATCH, ROW, batch_of, words_of

Words = npt.NDArray[np.int32]


def sequential(paths: Sequence[Path], batch_size: int = BATCH) -> Iterator[dict[str, Tensor]]:
    """The vectorised sequential scan: ``open().read()`` per file, every batch converted at once, file order, no selection.

    Batches run on over the ends of files; the last one is short.
    """
    carried = np.empty((0, ROW.itemsize // 4), np.int32)
    for path in paths:
        with open(path, "rb") as file:
            words = words_of(file.read())
        if len(carried):
            head = words[: batch_size - len(carried)]
            carried, words = np.concatenate([carried, head]), words[len(head) :]
            if len(carried) < batch_size:
                continue
            yield batch_of(carried)
        full = len(words) // batch_size * batch_size
        for start in range(0, full, batch_size):
            yield batch_of(words[start : start + batch_size])
        carried = words[full:]
    if len(carried):
        yield batch_of(carried)


def taken(mapped: Words, positions: npt.NDArray[np.int64], batch_size: int = BATCH) -> Iterator[dict[str, Tensor]]:
    """``np.take`` of rows of one memory map ``int32[n, 40]``, in any order."""
    for start in range(0, len(positions), batch_size):
        yield batch_of(np.take(mapped, positions[start : start + batch_size], axis=0))


def join(paths: Sequence[Path], into: Path) -> Words:
    """One file with the rows of all, mapped as ``int32[n, 40]``."""
    with open(into, "wb") as out:
        for path in paths:
            np.fromfile(path, np.uint8).tofile(out)
    return np.memmap(into, np.int32, mode="r").reshape(-1, ROW.itemsize // 4)
