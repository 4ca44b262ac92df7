"""Row formats as ingestion uses them: open a file, find its columns, convert its rows."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.ingestion.columns import Found
from modyn_dagster.ingestion.source import LoadedFile

ByteArray = npt.NDArray[np.uint8]
Int64Array = npt.NDArray[np.int64]
#: More byte ranges of the files that hold the rows, one ``(offset, length)`` per row: ``(bytes, offsets int64[n + 1])``.
Fetch = Callable[[Int64Array, Int64Array], tuple[ByteArray, Int64Array]]


@dataclass(frozen=True, slots=True)
class Ranges:
    """Where n samples lie in a buffer: byte offsets and lengths, ``int64[n]`` each."""

    offsets: Int64Array
    lengths: Int64Array

    def __len__(self) -> int:
        return len(self.offsets)


class OpenRows(Protocol):
    """One file whose rows were found; ``len`` is their number. Rows count from 0 here and from 1 in errors."""

    def __len__(self) -> int: ...

    @property
    def ranges(self) -> Ranges | None:
        """Where the rows' bytes lie in the file; None when rows are converted instead (``table``), and go to a shard."""

    def find_columns(self, keep: Collection[str] = ()) -> list[Found]:
        """Columns and dtypes as this file shows them; the cells of those to keep may save ``convert`` a second look."""

    def convert(self, columns: Sequence[Column], wanted: Collection[str]) -> dict[str, pa.Array]:
        """Check every cell against the dataset's columns; the wanted ones, each of length n.

        Numbers missing from a float64 column are NaN. Raises ``SchemaMismatch``, or ``DataError`` naming row and column.
        """


class RowFormat(Protocol):
    """A format whose samples are rows with columns."""

    def open(self, file: LoadedFile) -> OpenRows:
        """Find the rows of a file. Raises ``DataError`` where there are none, or they cannot be told apart."""
