"""Interface of a library contender, and the batch made of the rows that it returns as bytes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from benchmarks.rows import ROW, batch_of, words_of

Positions = npt.NDArray[np.int64]
#: Rows at any positions, in that order, as the benchmark's batch.
Take = Callable[[Positions], dict[str, Tensor]]


@dataclass(frozen=True, slots=True)
class Library:
    """A contender.

    Attributes:
        package: the distribution, whose version is reported.
        write: puts the rows of the benchmark's files into a folder, in the library's format.
        open: makes what takes rows out of that folder, in the way its documentation recommends for random access.
    """

    package: str
    write: Callable[[Sequence[Path], Path], None]
    open: Callable[[Path], Take]


def rows_of(paths: Iterable[Path]) -> Iterator[bytes]:
    """The rows of the benchmark's files one by one, 160 bytes each."""
    for path in paths:
        data = path.read_bytes()
        for start in range(0, len(data), ROW.itemsize):
            yield data[start : start + ROW.itemsize]


def arrays_of(paths: Iterable[Path]) -> Iterator[npt.NDArray[Any]]:
    """The rows of the benchmark's files, a structured array per file."""
    for path in paths:
        yield np.fromfile(path, ROW)


def batch_of_rows(rows: Iterable[bytes]) -> dict[str, Tensor]:
    """The batch of rows that came one by one."""
    return batch_of(words_of(b"".join(rows)))
