"""Outputs and layer activations of a model on windows of samples.

Forward passes run on fixed blocks of positions, each made once per model and kept in memory as long as there is room.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.data.view import DatasetView
from modyn_dagster.evaluation.predictions.blocks import BLOCK, fixed_blocks, read_blocks
from modyn_dagster.keys import KeyArray, ordinals_of, positions_of

if TYPE_CHECKING:
    from modyn_dagster.training import Predictor


#: Bytes of cached blocks in one process.
_MOST_BYTES: Final = 512 << 20


@dataclass(frozen=True, slots=True)
class BlockKey:
    """Key of one block of a batch under one model; ``deleted`` and ``labels`` are versions of its deleted list and its labels."""

    model_hash: str
    ordinal: int
    block: int
    deleted: int
    labels: int


@dataclass(frozen=True, slots=True)
class BlockValues:
    """Values of the present samples of a block.

    Attributes:
        positions: inside the batch, ascending, ``int64[n]``.
        truth: classes ``int64[n]`` (-1: none) or targets ``float64[n]`` (NaN: none); None where the dataset has no label.
        taps: values by name of the tap, ``float32[n, values]``.
    """

    positions: npt.NDArray[np.int64]
    truth: npt.NDArray[Any] | None
    taps: dict[str, npt.NDArray[np.float32]]

    @property
    def n_bytes(self) -> int:
        """Bytes of memory."""
        return self.positions.nbytes + sum(array.nbytes for array in self.taps.values())


class BlockCache:
    """Least-recently-used cache of the blocks of one model; the first block of another model empties it."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._blocks: OrderedDict[BlockKey, BlockValues] = OrderedDict()
        self._n_bytes = 0
        self._model = ""

    def find(self, key: BlockKey, taps: frozenset[str]) -> BlockValues | None:
        """Return a block with at least these taps; None where there is none."""
        block = self._blocks.get(key)
        if block is None or not taps <= block.taps.keys():
            return None
        self._blocks.move_to_end(key)
        return block

    def keep(self, key: BlockKey, values: BlockValues) -> None:
        """Store a block, in place of one with fewer taps."""
        if key.model_hash != self._model:
            self._blocks.clear()
            self._model, self._n_bytes = key.model_hash, 0
        if key in self._blocks:
            self._drop(key)
        self._blocks[key] = values
        self._n_bytes += values.n_bytes
        while self._n_bytes > self._most_bytes and len(self._blocks) > 1:
            self._drop(next(iter(self._blocks)))

    def _drop(self, key: BlockKey) -> None:
        self._n_bytes -= self._blocks.pop(key).n_bytes


@dataclass(frozen=True, slots=True)
class WindowValues:
    """Values of samples in key order.

    Attributes:
        keys: ``uint64[n]``.
        truth: classes ``int64[n]`` (-1: none) or targets ``float64[n]`` (NaN: none); None where the dataset has no label.
        taps: values by name of the tap, ``float32[n, values]``.
    """

    keys: KeyArray
    truth: npt.NDArray[Any] | None
    taps: dict[str, npt.NDArray[np.float32]]


class FeatureExtractor:
    """Extractor of outputs and activations of one model on windows of a dataset.

    A pass takes a whole block, aligned in its batch and padded, as in evaluation. The bits of a sample's values do not depend
    on the window, so measurements live and in a replay are equal.

    Attributes:
        n_passes: forward passes made so far.
    """

    def __init__(self, predictor: "Predictor", model_hash: str, cache: BlockCache) -> None:
        self._predictor = predictor
        self._model_hash = model_hash
        self._cache = cache
        self.n_passes = 0

    def values(self, view: DatasetView, keys: KeyArray, taps: Collection[str]) -> WindowValues:
        """Compute the taps for samples by key; keys ascend and are present in the view."""
        parts = list(self._parts(view, keys, frozenset(taps)))
        if not parts:
            return WindowValues(keys, None, {tap: np.empty((0, 0), np.float32) for tap in taps})
        truths = [part.truth for part in parts if part.truth is not None]
        arrays = {tap: np.concatenate([part.taps[tap] for part in parts]) for tap in taps}
        return WindowValues(keys, np.concatenate(truths) if truths else None, arrays)

    def _parts(self, view: DatasetView, keys: KeyArray, taps: frozenset[str]) -> Iterator[BlockValues]:
        ordinals = ordinals_of(keys)
        for batch in view.batches_at(np.unique(ordinals).tolist()):
            positions = positions_of(keys[ordinals == batch.ordinal])
            blocks = self._blocks(view, batch, np.unique(positions // BLOCK), taps)
            for number, values in blocks.items():
                rows = np.searchsorted(values.positions, positions[positions // BLOCK == number])
                yield _take(values, rows, taps)

    def _blocks(
        self, view: DatasetView, batch: BatchRow, numbers: npt.NDArray[np.int64], taps: frozenset[str]
    ) -> dict[int, BlockValues]:
        blocks: dict[int, BlockValues] = {}
        for number in numbers.tolist():
            block = self._cache.find(self._key(view, batch, number), taps)
            if block is not None:
                blocks[number] = block
        missing = [number for number in numbers.tolist() if number not in blocks]
        for number, values in zip(missing, self._passes(view, batch, missing, taps), strict=True):
            self._cache.keep(self._key(view, batch, number), values)
            blocks[number] = values
        return {number: blocks[number] for number in numbers.tolist()}

    def _passes(self, view: DatasetView, batch: BatchRow, numbers: list[int], taps: frozenset[str]) -> Iterator[BlockValues]:
        if not numbers:
            return
        n_samples = int(batch.n_samples or 0)
        positions = np.concatenate([np.arange(number * BLOCK, min((number + 1) * BLOCK, n_samples)) for number in numbers])
        deleted = view.deleted.positions(batch.ordinal).astype(np.int64)
        for group in read_blocks(view.reader.read, fixed_blocks(batch.ordinal, n_samples, positions, deleted)):
            for block, samples in group:
                self.n_passes += 1
                arrays = self._predictor.tapped(samples, taps)
                target = self._predictor.judged(samples)
                truth = target.labels if target.labels is not None else target.targets
                values = BlockValues(positions_of(samples.keys), truth, arrays)
                yield _take(values, block.rows, taps)

    def _key(self, view: DatasetView, batch: BatchRow, number: int) -> BlockKey:
        return BlockKey(self._model_hash, batch.ordinal, number, batch.deleted_version, view.label_version(batch))


def _take(values: BlockValues, rows: npt.NDArray[np.int64], taps: frozenset[str]) -> BlockValues:
    truth = None if values.truth is None else values.truth[rows]
    return BlockValues(values.positions[rows], truth, {tap: values.taps[tap][rows] for tap in taps})
