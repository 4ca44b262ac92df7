"""Columns that are expensive to read and read several times."""

import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Columns = tuple[npt.NDArray[Any], ...]


class ColumnCache:
    """What ``read`` gives, chunk by chunk; from the second pass on out of a file that has no name and leaves no trace.

    Args:
        read: starts a pass over tuples of equally long arrays, each column of one dtype.
        folder: where there is room for it.
    """

    def __init__(self, read: Callable[[], Iterator[Columns]], folder: Path) -> None:
        self._read = read
        self._folder = folder
        self._file: Any = None
        self._shape: list[tuple[int, list[np.dtype[Any]]]] = []

    def __iter__(self) -> Iterator[Columns]:
        if self._file is None:
            yield from self._first_pass()
            return
        self._file.seek(0)
        for length, dtypes in self._shape:
            yield tuple(np.frombuffer(self._file.read(length * dtype.itemsize), dtype) for dtype in dtypes)

    def _first_pass(self) -> Iterator[Columns]:
        # Only a pass that came to its end is there for others.
        file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - the finaliser closes it
        close = weakref.finalize(self, file.close)
        shape = []
        try:
            for columns in self._read():
                for column in columns:
                    file.write(np.ascontiguousarray(column).data)
                shape.append((len(columns[0]), [column.dtype for column in columns]))
                yield columns
        except BaseException:
            close()
            raise
        self._file, self._shape = file, shape
