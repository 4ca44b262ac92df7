"""A plain C loop over mapped files: the limit that the store and its stream are held against."""

import ctypes
import os
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.epochs import n_epochs
from benchmarks.measure import Contender, timed
from benchmarks.rows import BATCH, N_CATEGORICAL, N_NUMERIC

Keys = npt.NDArray[np.uint64]


class PlainLoop:
    """Files mapped for the loop, with one set of buffers of a batch.

    Args:
        paths: of files of rows, in the order of their ordinals, which count from 1.
        threads: that split a batch.
    """

    def __init__(self, paths: Sequence[Path], threads: int) -> None:
        self._maps = [np.memmap(path, np.uint8, "r") for path in paths]
        self._bases = np.array([array.ctypes.data for array in self._maps], np.uint64)
        self._threads = threads
        self._keys, self._weights = np.empty(BATCH, np.uint64), np.empty(BATCH, np.float32)
        self._out: dict[str, npt.NDArray[Any]] = {
            "num": np.empty((BATCH, N_NUMERIC), np.float32),
            "cat": np.empty((BATCH, N_CATEGORICAL), np.int64),
            "label": np.empty(BATCH, np.float32),
        }

    def batches(self, keys: Keys) -> Iterator[Mapping[str, npt.NDArray[Any]]]:
        """Batches of the rows of some keys, ``uint64[n]`` in any order; their buffers are used again."""
        for start in range(0, len(keys), BATCH):
            piece = keys[start : start + BATCH]
            _library().split_rows(_address(self._bases), _address(piece), *self._size(piece), *self._buffers())
            yield self._filled(len(piece))

    def permuted(
        self, keys: Keys, weights: npt.NDArray[np.float32], order: npt.NDArray[np.int64]
    ) -> Iterator[Mapping[str, npt.NDArray[Any]]]:
        """The same in the order of positions ``int64[n]``, with keys and weights gathered beside them."""
        beside = _address(self._keys), _address(self._weights)
        source = (_address(self._bases), _address(keys), _address(weights))
        for start in range(0, len(order), BATCH):
            positions: npt.NDArray[np.int64] = order[start : start + BATCH]
            _library().split_permuted(*source, _address(positions), *self._size(positions), *beside, *self._buffers())
            yield self._filled(len(positions))

    def _size(self, piece: npt.NDArray[Any]) -> tuple[ctypes.c_int64, ctypes.c_int]:
        return ctypes.c_int64(len(piece)), ctypes.c_int(self._threads)

    def _buffers(self) -> list[ctypes.c_void_p]:
        return [_address(values) for values in self._out.values()]

    def _filled(self, n: int) -> dict[str, npt.NDArray[Any]]:
        return {name: values[:n] for name, values in self._out.items()}


def looped(paths: Sequence[Path], keys: Keys, *, threads: int) -> Contender:
    """As many passes of the loop over the rows of ``keys`` as our own contenders make."""
    loop = PlainLoop(paths, threads)
    return _repeated(len(keys), lambda: loop.batches(keys))


def permuted(paths: Sequence[Path], keys: Keys, order: npt.NDArray[np.int64], *, threads: int) -> Contender:
    """The same in the order of positions ``int64[n]``, with keys and weights gathered beside them."""
    loop, weights = PlainLoop(paths, threads), np.ones(len(keys), np.float32)
    return _repeated(len(keys), lambda: loop.permuted(keys, weights, order))


def _repeated(n: int, batches: Callable[[], Iterator[Any]]) -> Contender:
    epochs = n_epochs(n)
    return timed(epochs * n, lambda: deque(chain.from_iterable(batches() for _ in range(epochs)), maxlen=0))


def _address(values: npt.NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(values.ctypes.data)


@cache
def _library() -> ctypes.CDLL:
    """The loop, compiled for this processor. Raises ``CalledProcessError`` where there is no C compiler with OpenMP."""
    with tempfile.TemporaryDirectory(prefix="modyn-plain-loop-") as folder:
        library = Path(folder, "plain_loop.so")
        source = Path(__file__).with_suffix(".c")
        flags = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
        subprocess.run([os.environ.get("CC", "cc"), *flags, str(source), "-o", str(library)], check=True)
        return ctypes.CDLL(str(library))
