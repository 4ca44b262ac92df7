"""Modyn's local baseline: the files in order, but each sample on its own, as its dataset classes do.

A generator yields (key, sample, label) per row: a slice of the file's bytes, tensors made of it by ``torch.frombuffer``; a
``DataLoader`` puts 65,536 of them together by PyTorch's default collate. Written for this benchmark after the description of the
local comparison in the paper "Modyn: Data-Centric Machine Learning Pipeline Orchestration", §7.3.1.
"""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.rows import BATCH, N_NUMERIC, ROW

Sample = tuple[int, dict[str, Tensor], int]

_LABEL_BYTES = 4


class PerSampleFiles(IterableDataset[Sample]):
    """Samples of fixed-row files, one after the other."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)

    def __iter__(self) -> Iterator[Sample]:
        key = 0
        for path in self._paths:
            data = path.read_bytes()
            for start in range(0, len(data), ROW.itemsize):
                row = data[start : start + ROW.itemsize]
                label = int.from_bytes(row[:_LABEL_BYTES], "little")
                yield key, _parse(memoryview(row)[_LABEL_BYTES:]), label
                key += 1


def _parse(sample: memoryview) -> dict[str, Tensor]:
    """The bytes parser of the paper's Criteo pipeline, in our names."""
    return {
        "num": torch.frombuffer(sample, dtype=torch.float32, count=N_NUMERIC),
        "cat": torch.frombuffer(sample, dtype=torch.int32, offset=4 * N_NUMERIC).long(),
    }


def batches(paths: Sequence[Path], batch_size: int = BATCH) -> Iterator[dict[str, Tensor]]:
    """Batches in file order, collated in this process; the last one may be short."""
    loader: DataLoader[Any] = DataLoader(PerSampleFiles(paths), batch_size=batch_size)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        for _, inputs, labels in loader:
            yield {"num": inputs["num"], "cat": inputs["cat"], "label": labels.float()}
