"""Writer of training sets, partition by partition."""

from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from fastpath.array_types import KeyArray, WeightArray
from fastpath.format.training_set_file import (
    DIGEST_FIELD,
    PROBABILITY_SCHEMA,
    SCHEMA,
    TABLE_DTYPE,
    TABLE_FIELD,
    check_columns,
    checksum_of,
)


class TrainingSetWriter:
    """Writer of partitions to a binary file that is open for writing; equal content gives equal bytes.

    ``close`` finishes the Arrow file and leaves ``out`` open; as a context manager the writer closes only after a block without
    an error. ``fastpath.format.training_set_file`` describes the format.

    Args:
        out: binary file.
        chances: whether every partition has inclusion probabilities.
    """

    def __init__(self, out: BinaryIO, *, chances: bool = False) -> None:
        self.n_samples = 0
        self._schema = PROBABILITY_SCHEMA if chances else SCHEMA
        self._table = bytearray()
        # PythonFile, because Arrow would close `out` itself with the writer.
        self._writer = pa.ipc.new_file(pa.PythonFile(out, mode="w"), self._schema)

    def write(self, keys: KeyArray, weights: WeightArray, chances: WeightArray | None = None) -> None:
        """Write a partition: ``uint64[n]`` keys, ``float32[n]`` weights and, in a set with ``chances``, ``float32[n]`` of them.

        n may be 0. Raises ``ValueError`` for probabilities in a set without them, or missing ones in a set with them.
        """
        check_columns(keys, weights)
        if (chances is None) == (self._schema is PROBABILITY_SCHEMA):
            raise ValueError(
                "either all partitions of a set have inclusion probabilities (`chances`), or none: "
                f"this one has {'none' if chances is None else 'some'}"
            )
        columns: list[npt.NDArray[Any]] = [np.ascontiguousarray(keys), np.ascontiguousarray(weights)]
        if chances is not None:
            check_columns(keys, chances)
            columns.append(np.ascontiguousarray(chances))
        # Hashing first brings the bytes into the cache for copying.
        digest = xxhash.xxh3_128()
        for column in columns:
            digest.update(column.data)
        self._write_batch(columns, {DIGEST_FIELD: digest.hexdigest()})
        self._table += np.array((len(keys), digest.digest()), dtype=TABLE_DTYPE).tobytes()
        self.n_samples += len(keys)

    def close(self) -> None:
        """Write the table of partitions and the end of the file."""
        empty = [np.empty(0, field.type.to_pandas_dtype()) for field in self._schema]
        self._write_batch(empty, {TABLE_FIELD: self._table.hex()})
        self._writer.close()

    @property
    def checksum(self) -> str:
        """Checksum of the partitions written so far: ``xxh3:`` and the hex digest over their lengths and digests."""
        return checksum_of(bytes(self._table))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()

    def _write_batch(self, columns: list[npt.NDArray[Any]], metadata: dict[Any, str]) -> None:
        batch = pa.record_batch([pa.array(column) for column in columns], schema=self._schema)
        self._writer.write_batch(batch, custom_metadata=metadata)
