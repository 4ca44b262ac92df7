"""Child process: a store over a damaged index, or a damaged list of deleted samples."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastpath import StoreError
from fastpath.array_types import KeyArray
from fastpath.format.deletions import write_deleted
from tests.fastpath.damaging import child, run
from tests.fastpath.made_store import MadeBatch, MadeStore, PlacedSample

N = 40
GONE = np.array([3, 4, 17, 39], dtype=np.uint32)


def made(folder: Path, *, several_lengths: bool) -> MadeStore:
    """A batch in two files, of rows at equal distances or of samples that each have a place of their own."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 30, N) if several_lengths else np.full(N, 24)
    samples = [PlacedSample(int(i > N // 2), int(rng.integers(3)), rng.bytes(int(length))) for i, length in enumerate(lengths)]
    return MadeStore(folder, [MadeBatch(2, samples, shard=0, compress=not several_lengths)])


class Look:
    """Everything that a store can be asked.

    ``right``: wrong answers count, because a checksum rules them out or the file is unharmed. ``unharmed``: errors count too.
    """

    def __init__(self, files: MadeStore, unharmed: bool, right: bool, gone: Sequence[int] = (), **arguments: Any) -> None:
        self.files, self.unharmed, self.right, self.gone = files, unharmed, right, set(gone)
        with files.open(**arguments) as self.store:
            keys = np.random.default_rng(1).permutation(np.tile(files.keys, 3))
            self._all(keys[~np.isin(keys, list(gone))])
            self._some(keys[:6])
            for key in (2 << 32 | N, 2 << 32 | 0xFFFFFFFF, 1 << 32):
                assert self._answer(self.store.where, key) is None or not right

    def _all(self, keys: KeyArray) -> None:
        store, ones = self.store, np.ones(len(keys), dtype=np.int64)
        for ask in (store.check, store.labels, store.timestamps, store.read):
            self._answer(ask, keys, must=True)
        self._answer(store.read_ranges, keys, ones - 1, ones)
        blobs = self._answer(store.read_blobs, keys, must=True)
        if self.right and blobs is not None:
            assert [bytes(blob) for blob in blobs] == [self.files.content[key] for key in keys.tolist()]

    def _some(self, keys: KeyArray) -> None:
        for key in keys.tolist():
            blobs = self._answer(self.store.read_blobs, np.array([key], dtype=np.uint64), must=key not in self.gone)
            place = self._answer(self.store.where, key)
            if self.right:
                assert blobs is None or (key not in self.gone and bytes(blobs[0]) == self.files.content[key])
                assert place is None or place.length == len(self.files.content[key])

    def _answer(self, ask: Callable[..., Any], *asked: Any, must: bool = False) -> Any:
        try:
            return ask(*asked)
        except StoreError:
            if must and self.unharmed:
                raise
            return None


def index(folder: Path, seed: int, n: int, *, several_lengths: bool = False) -> None:
    files = made(folder, several_lengths=several_lengths)
    path = files.indexes[2]

    def attempt(unharmed: bool) -> None:
        Look(files, unharmed, True)
        Look(files, unharmed, unharmed, checksums={})

    run(path, seed, n, attempt)


def index_of_places(folder: Path, seed: int, n: int) -> None:
    index(folder, seed, n, several_lengths=True)


def deleted(folder: Path, seed: int, n: int) -> None:
    files = made(folder, several_lengths=False)
    path = folder / "batches" / "d" / "2.1.deleted"
    with path.open("wb") as out:
        write_deleted(out, GONE)

    def attempt(unharmed: bool) -> None:
        Look(files, unharmed, unharmed, [2 << 32 | int(position) for position in GONE], deleted={2: path})

    run(path, seed, n, attempt)


if __name__ == "__main__":
    child({"index": index, "index_of_places": index_of_places, "deleted": deleted})
