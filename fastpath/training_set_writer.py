"""Writing a training set, partition by partition."""

from typing import Any, BinaryIO, Self

import numpy as np
import pyarrow as pa
import xxhash

from fastpath.training_set import check_columns
from fastpath.training_set_file import DIGEST_FIELD, SCHEMA, TABLE_DTYPE, TABLE_FIELD, KeyArray, WeightArray, checksum_of


class TrainingSetWriter:
    """Writes partitions as they come to a binary file that is open for writing; equal content gives equal bytes.

    ``close`` finishes the Arrow file and leaves ``out`` open; as a context manager it closes only when nothing was raised.
    ``fastpath.training_set_file`` describes the format.
    """

    def __init__(self, out: BinaryIO) -> None:
        self.n_samples = 0
        self._table = bytearray()
        # Arrow would close the file with its writer.
        self._writer = pa.ipc.new_file(pa.PythonFile(out, mode="w"), SCHEMA)

    def write(self, keys: KeyArray, weights: WeightArray) -> None:
        """Write a partition of ``uint64[n]`` keys and ``float32[n]`` weights; n may be 0."""
        check_columns(keys, weights)
        keys, weights = np.ascontiguousarray(keys), np.ascontiguousarray(weights)
        # Hashing first brings the bytes into the cache, where copying finds them.
        digest = xxhash.xxh3_128(keys.data)
        digest.update(weights.data)
        self._write_batch(keys, weights, {DIGEST_FIELD: digest.hexdigest()})
        self._table += np.array((len(keys), digest.digest()), dtype=TABLE_DTYPE).tobytes()
        self.n_samples += len(keys)

    def close(self) -> None:
        """Write the table of partitions and the end of the file."""
        self._write_batch(np.empty(0, np.uint64), np.empty(0, np.float32), {TABLE_FIELD: self._table.hex()})
        self._writer.close()

    @property
    def checksum(self) -> str:
        """``xxh3:`` and the digest over length and digest of the partitions written so far, hex."""
        return checksum_of(bytes(self._table))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()

    def _write_batch(self, keys: KeyArray, weights: WeightArray, metadata: dict[Any, str]) -> None:
        batch = pa.record_batch([pa.array(keys), pa.array(weights)], schema=SCHEMA)
        self._writer.write_batch(batch, custom_metadata=metadata)
