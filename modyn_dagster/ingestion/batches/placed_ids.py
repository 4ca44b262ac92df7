"""Ids of the samples of a batch, with the file and row of each, for errors that name both samples with one id."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastpath.array_types import Int64Array
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.formats.ids import shown_id


@dataclass(frozen=True)
class PlacedIds:
    """Ids of n samples in key order.

    Attributes:
        ids: Arrow ``string`` array.
        paths: files of the batch.
        path_of: index into ``paths``, ``int64[n]``.
        rows: row in its file from 0, ``int64[n]``.
    """

    ids: pa.Array
    paths: Sequence[str]
    path_of: Int64Array
    rows: Int64Array

    def __len__(self) -> int:
        return len(self.rows)

    def require_unique(self) -> None:
        """Raise ``DataError`` naming both samples where two have one id."""
        codes = self.ids.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        firsts = np.full(int(codes.max(initial=-1)) + 1, len(codes))
        np.minimum.at(firsts, codes, np.arange(len(codes)))
        repeated = np.flatnonzero(firsts[codes] != np.arange(len(codes)))
        if len(repeated):
            second = int(repeated[0])
            self.refuse(second, f"the sample of {self.place(int(firsts[codes[second]]))} has it too")

    def refuse(self, sample: int, other: str) -> None:
        """Raise the ``DataError`` of a sample whose id another one has."""
        id = shown_id(self.ids[sample].as_py())
        path, row = self.paths[self.path_of[sample]], int(self.rows[sample]) + 1
        raise DataError(path, f"the id {id} is not unique in the dataset: {other}", row=row)

    def place(self, sample: int) -> str:
        """File and row of a sample."""
        return f"{self.paths[self.path_of[sample]]}, row {int(self.rows[sample]) + 1}"

    def position_of(self, id: str) -> int:
        """Position of a sample by its id."""
        return int(pc.index(self.ids, pa.scalar(id, pa.string())).as_py())
