"""Child process: a damaged training set."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fastpath import StoreError, TrainingSet, TrainingSetWriter
from tests.fastpath.damaging import child, run

KEYS = np.random.default_rng(0).integers(0, 2**64, 60, dtype=np.uint64)
WEIGHTS = np.random.default_rng(1).random(60, dtype=np.float32)
CUTS = (0, 25, 25, 50, 60)


def training_set(folder: Path, seed: int, n: int) -> None:
    path = folder / "set.arrow"
    with path.open("wb") as out, TrainingSetWriter(out) as writer:
        for start, stop in pairwise(CUTS):
            writer.write(KEYS[start:stop], WEIGHTS[start:stop])

    def attempt(unharmed: bool) -> None:
        look(path, writer.checksum, unharmed, True)
        look(path, None, unharmed, unharmed)

    run(path, seed, n, attempt)


def look(path: Path, checksum: str | None, unharmed: bool, right: bool) -> None:
    """Everything that a set can be asked. ``right``: wrong answers count; ``unharmed``: errors count too."""

    def check(which: Any, ask: Callable[..., Any], *asked: Any) -> None:
        answer = _answer(unharmed, ask, *asked)
        if right and answer is not None:
            np.testing.assert_array_equal(answer[0], KEYS[which])
            np.testing.assert_array_equal(answer[1], WEIGHTS[which])

    found = _answer(unharmed, TrainingSet.open, path, checksum)
    if found is None:
        return
    n = len(found)
    assert not right or (n, found.n_partitions) == (len(KEYS), len(CUTS) - 1)
    for i in range(found.n_partitions):
        check(slice(*CUTS[i : i + 2]), found.partition, i)
    for positions in (np.arange(min(n, 1000)), np.arange(len(KEYS))[::-1].copy(), np.zeros(3, dtype=np.int64), np.array([n - 1])):
        if n and positions.max() < n:
            check(positions, found.take, positions)
    for start, stop in ((0, n), (n // 3, n // 2)):
        check(slice(start, stop), found.slice, start, stop)
    _answer(unharmed, found.verify)


def _answer(must: bool, ask: Callable[..., Any], *asked: Any) -> Any:
    try:
        return ask(*asked)
    except StoreError:
        if must:
            raise
        return None


if __name__ == "__main__":
    child({"training_set": training_set})
