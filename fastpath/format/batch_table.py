"""Table of batches: each index is opened, verified and entered for the kernels with the first request for one of its keys."""

import weakref
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from fastpath.array_types import Int64Array, address_of
from fastpath.copies import opened_again
from fastpath.errors import CorruptFile, StoreError
from fastpath.format.blocks import BLOCK_BYTES, Digests, first_changed_block
from fastpath.format.deletions import newest_deleted, read_deleted
from fastpath.format.file_table import FileTable, Opened
from fastpath.format.index import BatchIndex, private_copy
from fastpath.format.labels.label_file import LabelArray, LabelKind
from fastpath.format.mapped_files import Expected, Version, open_verified, require_checksum, resident_copy
from fastpath.format.opening import Opening
from fastpath.kernels._batches import BATCH_FIELDS, MODES, fill_directory, publish
from fastpath.kernels._resolve import Resolver

_WORD: Final = 64


def batch_row(
    index: BatchIndex,
    deleted: npt.NDArray[np.uint32],
    index_file: int,
    first_file: int,
    known: LabelArray | None = None,
) -> tuple[int, Int64Array, list[object]]:
    """Row of the kernels' table: mode, fields behind the mode, and the arrays to keep as long as the row points to them.

    Args:
        index: index of the batch.
        deleted: positions, ascending and below ``index.n``.
        index_file: id of the index among the files.
        first_file: id of the batch's first file.
        known: labels in place of those in the index.
    """
    extents = index.extents
    # Sizes are private copies, as is a single extent: they must stay right even if the mapped index is overwritten.
    sizes = index.sizes
    kept: list[object] = [sizes]
    row = {"n": index.n, "index_file": index_file, "first_file": first_file, "n_files": len(sizes), "size": address_of(sizes)}
    row |= {"length": -1 if index.width is None else index.width, "n_runs": len(extents.file), "time": address_of(index.times)}
    labels = known if known is not None else index.labels if index.labels is not None else index.targets
    if known is not None:
        kept.append(known)
    row["label"] = 0 if labels is None else address_of(labels)
    if len(deleted):
        bits = _bitmap(deleted, index.n)
        kept.append(bits)
        row["deleted"] = address_of(bits)
    if len(extents.file) == 1:
        stride = 0 if extents.stride is None else int(extents.stride[0])
        row |= {"file": first_file + int(extents.file[0]), "offset": int(extents.offset[0]), "stride": stride}
        return MODES["one_run"], _words(row), kept
    row |= {"run_file": address_of(extents.file), "run_offset": address_of(extents.offset)}
    row |= {"run_length": address_of(extents.length)}
    if index.n == 0 or extents.start is None or extents.stride is None:
        return MODES["rows"], _words(row), kept
    directory, shift = _directory(private_copy(index.path, extents.start), index.n)
    kept.append(directory)
    row |= {"run_start": address_of(extents.start), "run_stride": address_of(extents.stride)}
    row |= {"directory": address_of(directory), "shift": shift}
    return MODES["runs"], _words(row), kept


def _directory(start: Int64Array, n: int) -> tuple[npt.NDArray[np.uint32], int]:
    """Run of every 2**shift-th sample, and the last run; about as many entries as there are runs."""
    runs = len(start)
    shift = max(0, (n // runs).bit_length() - 1)
    first = np.arange(((n - 1) >> shift) + 1, dtype=np.int64) << shift
    # The starts may have been overwritten since they were checked.
    run = np.clip(np.searchsorted(start, first, side="right") - 1, 0, runs - 1)
    return np.append(run, runs - 1).astype(np.uint32), shift


def _bitmap(positions: npt.NDArray[np.uint32], n: int) -> npt.NDArray[np.uint64]:
    bits = np.zeros((n + _WORD - 1) // _WORD, dtype=np.uint64)
    wide = positions.astype(np.uint64)
    np.bitwise_or.at(bits, (wide // np.uint64(_WORD)).astype(np.int64), np.uint64(1) << (wide % np.uint64(_WORD)))
    return bits


def _words(row: dict[str, int]) -> Int64Array:
    return np.array([row.get(name, 0) for name in BATCH_FIELDS[1:]], dtype=np.int64)


_MODE: Final = BATCH_FIELDS.index("mode")


class BatchTable:
    """Batches in ascending order of ordinals, for Python and for the kernels.

    Files of samples, and the indexes themselves, are added to ``files`` as batches are opened.
    """

    def __init__(self, opening: Opening, files: FileTable) -> None:
        self.ordinals = np.array(sorted(opening.indexes), dtype=np.int64)
        self._opening, self._files = opening, files
        self._opened: dict[int, _Entry] = {}
        self._ordinal_of: dict[int, int] = {}
        self._kept: dict[int, object] = {}
        # In a strict store: versions of the compared files, and the digests of the blocks of batches.
        self._compared: dict[tuple[int, int], Version] = {}
        self._blocks: dict[int, list[Digests] | None] = {}
        self._table = np.zeros((max(1, len(self.ordinals)), len(BATCH_FIELDS)), dtype=np.int64)
        capacity = 1 << max(4, (2 * len(self.ordinals)).bit_length())
        self._directory = np.full(capacity, -1, dtype=np.int64), np.zeros(capacity, dtype=np.int32)
        self._shift = fill_directory(self.ordinals, *self._directory)

    def resolver(self) -> Resolver:
        """New kernel over the table, for one thread at a time."""
        return Resolver(*self._directory, self._shift, self._table)

    def open(self, ordinal: int) -> BatchIndex:
        """Open a batch of the store, unless it is open. Raises ``CorruptFile``."""
        try:
            with self._files.opening:
                return self._entry(ordinal).index
        except CorruptFile as error:
            raise error.read_for(self._opening.roots.dataset) from error

    @property
    def n_opened(self) -> int:
        """Number of opened batches."""
        return len(self._opened)

    def common_width(self) -> int | None:
        """Bytes that the samples of all batches have; None when they differ."""
        if self._opening.width is not None:
            return self._opening.width
        width = None
        for ordinal in self.ordinals.tolist():
            index = self.open(ordinal)
            # One batch of several widths, such as text, decides for all: there may be thousands.
            if index.n and (index.width is None or width not in (None, index.width)):
                return None
            width = index.width if index.n else width
        return width

    def label_kind(self) -> LabelKind | None:
        """Kind of the labels: class indices, regression targets, or None."""
        if self._opening.labels is not None:
            return self._opening.labels.kind
        with self._files.opening:
            first = next(iter(self._opened.values()), None)
        if first is not None:
            return _kind(first.index)
        return _kind(self.open(int(self.ordinals[0]))) if len(self.ordinals) else None

    def ordinal_of(self, file: int) -> int | None:
        """Ordinal of the batch whose index has this file id; None for other files."""
        return self._ordinal_of.get(file)

    def index_file(self, ordinal: int) -> int:
        """File id of the index of an opened batch."""
        return self._entry(ordinal).index_file

    def locate(self, key: int) -> tuple[str, int]:
        """File and offset of a sample of an opened batch, deleted or not. Raises ``CorruptFile``."""
        index = self._entry(key >> 32).index
        file, offset = index.locate_one(key & 0xFFFFFFFF)
        try:
            return str(self._expected(key >> 32, file).path), offset
        except StoreError:
            # The root is not known here, or the path leaves it.
            return str(index.file(file).path), offset

    def path(self, ordinal: int, file: int) -> Path:
        """Path of a file of an opened batch."""
        return self._expected(ordinal, file - self._entry(ordinal).first_file).path

    def _read(self, ordinal: int) -> BatchIndex:
        index = BatchIndex.open(self._opening.indexes[ordinal], self._opening.checksums.get(ordinal))
        width = self._opening.width_of(ordinal)
        if width is not None and index.n and index.width != width:
            found = "samples of different lengths" if index.width is None else f"samples of {index.width} bytes"
            raise CorruptFile(index.path, f"samples of {width} bytes", found)
        first = next((entry.index for entry in self._opened.values()), index)
        if _kind(index) != _kind(first):
            expected = f"{_kind(first) or 'no labels'}, like {first.path.name}"
            raise CorruptFile(index.path, expected, f"{_kind(index) or 'none'}")
        return index

    def _enter(self, ordinal: int, index: BatchIndex) -> None:
        files = self._files
        deleted = self._deleted_positions(ordinal, index)
        # A strong reference would be a cycle: files of closed stores would stay mapped until garbage is collected.
        batches = weakref.proxy(self)
        index_file = files.add([index.version.size], lambda _: batches._renewed(ordinal))
        files.hold(index_file, _opened(index), lasting=True)
        first_file = files.add(index.sizes, lambda i: batches._open_file(ordinal, i))
        self._ordinal_of[index_file] = ordinal
        self._fill(ordinal, _Entry(index, deleted, index_file, first_file))

    def _fill(self, ordinal: int, entry: "_Entry") -> None:
        labels = self._opening.labels
        known = None if labels is None else labels.of(ordinal, entry.index.n)
        mode, row, kept = batch_row(entry.index, entry.deleted, entry.index_file, entry.first_file, known)
        slot = int(np.searchsorted(self.ordinals, ordinal))
        old, self._kept[ordinal] = self._kept.get(ordinal), (entry.index, kept)
        self._table[slot, _MODE + 1 :] = row
        publish(self._table, slot, mode)
        if old is not None:
            self._files.retire(old)
        # Last: an entry here counts as complete.
        self._opened[ordinal] = entry

    def _entry(self, ordinal: int) -> "_Entry":
        # Kernels may see a batch a moment before it is entered here, and always if the process was forked in that moment.
        with self._files.opening:
            if ordinal not in self._opened:
                self._enter(ordinal, self._read(ordinal))
            return self._opened[ordinal]

    def _deleted_positions(self, ordinal: int, index: BatchIndex) -> npt.NDArray[np.uint32]:
        path = newest_deleted(index.path) if self._opening.deleted is None else self._opening.deleted.get(ordinal)
        checksum = self._opening.deleted_checksums.get(ordinal)
        positions = np.empty(0, dtype=np.uint32) if path is None else read_deleted(path, checksum)
        if len(positions) and positions[-1] >= index.n:
            raise CorruptFile(str(path), f"positions below {index.n}", f"position {positions[-1]}")
        return positions

    def _open_file(self, ordinal: int, i: int) -> Opened:
        expected = self._expected(ordinal, i)
        return opened_again(expected.path, lambda: self._open_expected(ordinal, i, expected))

    def _open_expected(self, ordinal: int, i: int, expected: Expected) -> Opened:
        mapped, version = open_verified(expected)
        if not self._opening.resident:
            opened = Opened(str(expected.path), mapped, mapped.address, version)
        else:
            copy = resident_copy(expected.path, version.size)
            opened = Opened(str(expected.path), copy, copy.ctypes.data, version)
        if self._opening.strict and self._compared.get((ordinal, i)) != version:
            self._compare(ordinal, i, expected, opened)
            self._compared[ordinal, i] = version
        return opened

    def _compare(self, ordinal: int, i: int, expected: Expected, opened: Opened) -> None:
        """Compare all bytes of a file with those of its ingestion, whatever its size and time of change say."""
        index = self._entry(ordinal).index
        if ordinal not in self._blocks:
            self._blocks[ordinal] = index.block_digests()
        digests, size = self._blocks[ordinal], opened.version.size
        if digests is None:
            # An older index: slower, and the place of the damage stays unknown.
            require_checksum(expected)
            return
        block = first_changed_block(opened.address, size, digests[i])
        if block is None:
            return
        start, stop = block * BLOCK_BYTES, min(size, (block + 1) * BLOCK_BYTES)
        positions = index.positions_in(i, start, stop)
        samples = "no sample" if positions is None else f"samples {positions[0]} to {positions[1]}"
        raise CorruptFile(
            expected.path,
            f"bytes {start} to {stop} as they were ingested",
            f"other ones, in {samples} of batch {ordinal}; restore the file from a backup, or replace the batch",
            key=None if positions is None else (ordinal << 32) + positions[0],
            dataset=self._opening.roots.dataset,
        )

    def _expected(self, ordinal: int, i: int) -> Expected:
        # Another name of the index, chosen by the caller, says nothing about the name of the shard.
        number, _, rewrite = self._opening.indexes[ordinal].stem.partition(".")
        rewrite = rewrite if number.isdecimal() and rewrite.isdecimal() else ""
        return self._opening.roots.expected(ordinal, self._entry(ordinal).index.file(i), rewrite)

    def _renewed(self, ordinal: int) -> Opened:
        """Index that was written again with equal bytes; earlier requests still see the old mapping."""
        entry = self._opened[ordinal]
        if ordinal not in self._opening.checksums:
            expected = "the index as it was when it was opened"
            raise CorruptFile(entry.index.path, expected, "another inode, size or time of change")
        index = self._read(ordinal)
        self._fill(ordinal, replace(entry, index=index))
        return _opened(index)


@dataclass(frozen=True, slots=True)
class _Entry:
    index: BatchIndex
    deleted: npt.NDArray[np.uint32]
    index_file: int
    first_file: int


def _opened(index: BatchIndex) -> Opened:
    return Opened(str(index.path), index.content, index.content.address, index.version)


def _kind(index: BatchIndex) -> LabelKind | None:
    if index.labels is not None:
        return "labels"
    return None if index.targets is None else "targets"
