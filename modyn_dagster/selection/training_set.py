"""The training set on disk: Arrow IPC, one record batch of keys and weights per partition."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from modyn_dagster.errors import CorruptFile
from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.select import Partition
from modyn_dagster.storage import atomic_write, verify_checksum

_SCHEMA = pa.schema([pa.field("key", pa.uint64(), nullable=False), pa.field("weight", pa.float32(), nullable=False)])


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: number of samples and the file's checksum."""

    n_samples: int
    checksum: str


def write_training_set(path: Path, partitions: Iterable[Partition]) -> Written:
    """Write partitions as they come; equal content gives equal bytes. The file appears as a whole or not at all."""
    n_samples = 0
    with atomic_write(path) as file:
        with pa.ipc.new_file(file, _SCHEMA) as writer:
            for partition in partitions:
                columns = [pa.array(partition.keys), pa.array(partition.weights)]
                writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
                n_samples += len(partition.keys)
        checksum = file.checksum
    return Written(n_samples, checksum)


class TrainingSet:
    """A training set, memory-mapped; partitions are views of the file."""

    def __init__(self, path: Path, reader: pa.RecordBatchFileReader) -> None:
        self.path = path
        self._reader = reader

    @classmethod
    def open(cls, path: Path, checksum: str) -> Self:
        """Map a file after its checksum was verified; ``CorruptFile`` otherwise."""
        verify_checksum(path, checksum)
        try:
            reader = pa.ipc.open_file(pa.memory_map(str(path)))
        except pa.ArrowInvalid as error:
            raise CorruptFile(path, "an Arrow file", str(error)) from error
        if not reader.schema.equals(_SCHEMA):
            raise CorruptFile(path, str(_SCHEMA), str(reader.schema))
        return cls(path, reader)

    def partitions(self) -> Iterator[Partition]:
        """One partition after the other."""
        for index in range(self._reader.num_record_batches):
            batch = self._reader.get_batch(index)
            yield Partition(batch.column(0).to_numpy(), batch.column(1).to_numpy())

    def keys(self) -> KeyArray:
        """All keys, ``uint64[n]``, in the order written."""
        return np.concatenate([np.empty(0, np.uint64), *(p.keys for p in self.partitions())])

    def weights(self) -> npt.NDArray[np.float32]:
        """All weights, ``float32[n]``, in the order of the keys."""
        return np.concatenate([np.empty(0, np.float32), *(p.weights for p in self.partitions())])
