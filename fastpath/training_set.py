"""Training set: keys of the samples to train on, in partitions, each sample with a weight."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fastpath.array_types import Int64Array, KeyArray, WeightArray, address_of
from fastpath.copies import copies_at, opened_again
from fastpath.errors import StoreError
from fastpath.format.partitions import Partitions
from fastpath.format.training_set_file import Partition, TrainingSetFile, check_columns
from fastpath.kernels._take import copy_out


class TrainingSet:
    """Keys and weights by position, memory-mapped or in memory; any number of threads may read a set.

    Opening reads no data: a partition of a file is compared with its checksum when it is first used.

    >>> training_set = TrainingSet.of(np.array([7, 9, 11], dtype=np.uint64))
    >>> keys, weights = training_set.take(np.array([2, 0]))
    >>> keys.tolist(), weights.tolist()
    ([11, 7], [1.0, 1.0])
    """

    def __init__(self, partitions: Partitions, file: TrainingSetFile | None = None) -> None:
        self._partitions, self._file = partitions, file

    @classmethod
    def open(cls, path: Path | str, checksum: str | None = None) -> Self:
        """Map a file that ``TrainingSetWriter`` wrote.

        ``checksum`` is that of the writer; None trusts the file's own. Raises ``CorruptFile`` for another checksum, or a file
        that is no training set; later uses raise it for a damaged partition.
        """
        path = Path(path)
        return opened_again(path, lambda: cls._open(path, checksum))

    @classmethod
    def _open(cls, path: Path, checksum: str | None) -> Self:
        file = TrainingSetFile(path, checksum)
        opened = cls(Partitions(file.sizes, file.read), file)
        if copies_at(path) is not None:
            # A damaged copy is fetched again, which is too late once the set is in use.
            opened.verify()
        return opened

    @classmethod
    def of(cls, keys: KeyArray, weights: WeightArray | None = None) -> Self:
        """Set in memory, in one partition: ``uint64[n]`` keys, and ``float32[n]`` weights or all 1.

        The arrays are kept without a copy unless they are unaligned or strided.
        """
        if weights is None:
            weights = np.ones(len(keys), dtype=np.float32)
        check_columns(keys, weights)
        whole = Partition(np.require(keys, requirements=("C", "A")), np.require(weights, requirements=("C", "A")))
        return cls(Partitions(np.array([len(keys)], dtype=np.int64), lambda _: whole))

    @property
    def path(self) -> Path | None:
        """File of the set, or None in memory."""
        return self._file.path if self._file is not None else None

    @property
    def checksum(self) -> str | None:
        """Checksum of the file, or None in memory."""
        return self._file.checksum if self._file is not None else None

    def __len__(self) -> int:
        return self._partitions.n

    def __repr__(self) -> str:
        return f"TrainingSet({len(self)} samples in {self.n_partitions} partitions, {self.path or 'in memory'})"

    @property
    def n_partitions(self) -> int:
        """Number of partitions, empty ones included."""
        return len(self._partitions)

    def partition(self, i: int) -> Partition:
        """Partition i as read-only views of the map. Raises ``IndexError``, or ``CorruptFile`` for a damaged one.

        The views become unreadable if the file is cut short. ``take``, ``keys`` and ``weights`` copy.
        """
        if not 0 <= i < self.n_partitions:
            raise IndexError(f"partition {i} of {self.n_partitions}")
        self.touch((i,))
        self._check()
        return self._partitions[i]

    def partitions(self) -> Iterator[Partition]:
        """Iterate over the partitions."""
        return (self.partition(i) for i in range(self.n_partitions))

    def keys(self) -> KeyArray:
        """Copy of all keys, ``uint64[n]``, in the order written."""
        return self._whole(0, np.empty(len(self), np.uint64))

    def weights(self) -> WeightArray:
        """Copy of all weights, ``float32[n]``, in the order of the keys."""
        return self._whole(1, np.empty(len(self), np.float32))

    def chances(self, i: int) -> WeightArray | None:
        """Inclusion probability of each sample of partition i, ``float32[n]``, as a read-only view; None in a set without them.

        Raises as ``partition``.
        """
        part = self.partition(i)
        if self._file is None or not self._file.has_chances:
            return None
        return self._file.chances(i) if len(part.keys) else np.empty(0, np.float32)

    def slice(self, start: int, stop: int) -> Partition:
        """Keys and weights of positions ``start`` to ``stop``: views if one partition holds them, else copies.

        Raises ``IndexError`` for a slice outside ``0..n``.
        """
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"the slice {start}:{stop} lies outside a training set of {len(self)} samples")
        holding = self._partitions.holding(start, stop)
        self.touch(holding)
        self._check()
        parts = [self._inside(i, start, stop) for i in holding]
        if len(parts) == 1:
            return parts[0]
        keys, weights = np.empty(stop - start, np.uint64), np.empty(stop - start, np.float32)
        at = 0
        for part in parts:
            self._copy(part.keys, keys[at : at + len(part.keys)])
            self._copy(part.weights, weights[at : at + len(part.keys)])
            at += len(part.keys)
        return Partition(keys, weights)

    def take(self, positions: Int64Array) -> tuple[KeyArray, WeightArray]:
        """Keys ``uint64[k]`` and weights ``float32[k]`` at ``positions int64[k]``, in any order and with repetitions.

        Raises ``IndexError`` for a position outside ``0..n``.
        """
        keys, weights = np.empty(len(positions), np.uint64), np.empty(len(positions), np.float32)
        self.take_into(positions, keys, weights)
        return keys, weights

    def take_into(self, positions: Int64Array, keys: KeyArray, weights: WeightArray) -> None:
        """Fill in keys and weights at positions, in contiguous ``uint64[k]`` and ``float32[k]``. Without the GIL."""
        n = len(positions)
        for name, array, dtype in (
            ("positions", positions, np.int64),
            ("keys", keys, np.uint64),
            ("weights", weights, np.float32),
        ):
            if array.dtype != dtype or array.shape != (n,) or not (array.flags.c_contiguous and array.flags.aligned):
                raise ValueError(f"{name} must be a contiguous {np.dtype(dtype)}[{n}], not {array.dtype}{list(array.shape)}")
        self._check(self._partitions.take(positions, keys, weights))

    def touch(self, partitions: Iterable[int]) -> None:
        """Verify partitions that were not verified before. Raises ``CorruptFile`` for the first damaged one."""
        self._partitions.verify(partitions)

    def verify(self) -> None:
        """Verify all partitions that were not verified before."""
        self.touch(range(self.n_partitions))

    def _whole(self, column: int, out: npt.NDArray[Any]) -> npt.NDArray[Any]:
        self.verify()
        for i in range(self.n_partitions):
            self._copy(self._partitions[i][column], out[self._partitions.start[i] : self._partitions.start[i + 1]])
        return out

    def _inside(self, i: int, start: int, stop: int) -> Partition:
        first, part = int(self._partitions.start[i]), self._partitions[i]
        inside = slice(max(start - first, 0), stop - first)
        return Partition(part.keys[inside], part.weights[inside])

    def _copy(self, source: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
        self._check(copy_out(address_of(source), out.view(np.uint8)))

    def _check(self, fault: int = 0) -> None:
        """Raise ``CorruptFile`` if the file changed; ``fault`` is an address that could not be read."""
        if self._file is not None:
            self._file.check_unchanged()
            if fault:
                raise self._file.corrupt(f"{len(self)} samples that can be read", "a page that cannot")
        elif fault:
            raise StoreError(
                f"the arrays of a training set of {len(self)} samples cannot be read: a file behind them was cut short"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        if self._file is not None:
            return type(self).open, (self._file.path, self._file.checksum)
        return type(self).of, tuple(self.partition(0))
