"""A uniform subset of exact size from a stream of keys, in bounded memory."""

from collections.abc import Iterable, Iterator

import numpy as np

from modyn_dagster.keys import KeyArray
from modyn_dagster.randomness import hash_keys


class UniformLimit:
    """Keeps the ``limit`` keys with the smallest salted hash: every subset of that size is equally likely over salts.

    Which keys stay depends on the set of keys and the salt alone, not on how or in which chunks they arrive. Memory is
    bounded by ``limit`` plus one chunk.
    """

    def __init__(self, limit: int, salt: int) -> None:
        self.limit = limit
        self.salt = salt
        self.n_seen = 0
        self._keys: KeyArray = np.empty(0, dtype=np.uint64)

    def add(self, keys: KeyArray) -> None:
        """Look at more keys, ``uint64[n]``, each at most once."""
        self.n_seen += len(keys)
        merged = np.concatenate([self._keys, keys])
        if len(merged) > self.limit:
            # The key itself breaks ties of the hash, so that the order of arrival never matters.
            order = np.lexsort((merged, hash_keys(merged, self.salt)))
            merged = merged[order[: self.limit]]
        self._keys = merged

    def selected(self) -> KeyArray:
        """The kept keys, ascending."""
        return np.sort(self._keys)


def rechunked(chunks: Iterable[KeyArray], size: int) -> Iterator[KeyArray]:
    """The same keys in chunks of exactly ``size``; the last may be shorter."""
    waiting: list[KeyArray] = []
    n_waiting = 0
    for chunk in chunks:
        waiting.append(chunk)
        n_waiting += len(chunk)
        while n_waiting >= size:
            merged = np.concatenate(waiting)
            yield merged[:size]
            waiting = [merged[size:]]
            n_waiting -= size
    if n_waiting:
        yield np.concatenate(waiting)
