"""D-R-TBS whose reservoir is in a key-value store, by slot: the two slowest of Figure 7, "Cent,KV,RJ" and "Cent,KV,CJ".

The coordinator draws the slots of victims and the positions of newcomers. With the co-located join ("CJ") each worker gets the
positions inside its own part of the batch. With the repartition join ("RJ") batch and positions are both dealt by a hash of
the position first. Either way workers put the newcomers into the store, where no two writes ever meet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.contenders.central_decisions import Positions, positions_by_shard
from modyn_dagster.distributed.protocols import Pool
from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.time_biased.latent_sample import LatentSample
from modyn_dagster.selection.time_biased.sampler import uniform_positions
from modyn_dagster.selection.time_biased.sharded.shard import Batch, compacted, picked

#: Multiplier of the hash by which a repartition deals positions (Knuth).
_KNUTH: Final = 2654435761

Bucket = tuple[Positions, KeyArray]


class KeyValueStore(Protocol):
    """A store of keys by slot that all workers reach; a value that travels to them."""

    def put(self, slots: Positions, keys: KeyArray) -> None: ...

    def get(self, slots: Positions) -> KeyArray: ...

    def cut(self, size: int) -> None:
        """Delete the slots from ``size`` on."""


@dataclass(frozen=True, slots=True)
class Put:
    """Newcomers of one part of a batch, and the slots they go to."""

    store: KeyValueStore
    batch: Batch
    positions: Positions
    slots: Positions


@dataclass(frozen=True, slots=True)
class Join:
    """One bucket of a repartition join: pieces of the batch, wanted positions of the whole batch, and their slots."""

    store: KeyValueStore
    pieces: list[Bucket]
    positions: Positions
    slots: Positions


def put_newcomers(work: Put) -> None:
    work.store.put(work.slots, picked(work.batch, work.positions))


def repartition(work: tuple[Batch, int, int]) -> list[Bucket]:
    """A part of a batch, its first position in the batch, and the number of buckets: pieces by bucket."""
    batch, first, buckets = work
    positions = np.arange(first, first + len(batch))
    owner = _bucket_of(positions, buckets)
    return [(positions[owner == bucket], picked(batch, np.flatnonzero(owner == bucket))) for bucket in range(buckets)]


def join_and_put(work: Join) -> None:
    positions = np.concatenate([piece for piece, _ in work.pieces])
    keys = np.concatenate([piece for _, piece in work.pieces])
    order = np.argsort(positions)
    found = order[np.searchsorted(positions, work.positions, sorter=order)]
    work.store.put(work.slots, keys[found])


class KeyValueRTBS(LatentSample[Sequence[Batch]]):
    """R-TBS over a key-value store; the same law as ``RTBS``."""

    def __init__(
        self, n: int, decay: float, seed: int, *, store: KeyValueStore, pool: Pool, join: Literal["RJ", "CJ"] = "CJ"
    ) -> None:
        super().__init__(n, decay)
        self.store, self.pool, self.join = store, pool, join
        self._rng = np.random.default_rng(seed)
        self._n_slots = 0
        self._partial: int | None = None

    def update_parts(self, parts: Sequence[npt.NDArray[np.uint64]], elapsed: float = 1.0) -> None:
        self._advance([compacted(part) for part in parts], sum(map(len, parts)), elapsed, self._rng)

    def sample(self) -> KeyArray:
        full = self.store.get(np.arange(self._n_slots))
        is_in = self._partial is not None and self._coin < self._fraction
        return np.append(full, np.uint64(self._partial)) if self._partial is not None and is_in else full

    @property
    def _n_full(self) -> int:
        return self._n_slots

    def _append(self, batch: Sequence[Batch]) -> None:
        everything = [np.arange(len(part)) for part in batch]
        n_new = sum(map(len, batch))
        self._put(batch, everything, np.arange(self._n_slots, self._n_slots + n_new))
        self._n_slots += n_new

    def _exchange(self, batch: Sequence[Batch], m: int, rng: np.random.Generator) -> None:
        self._put(batch, positions_by_shard([len(part) for part in batch], m, rng), uniform_positions(rng, self._n_slots, m))

    def _keep(self, k: int, rng: np.random.Generator) -> None:
        kept = np.sort(uniform_positions(rng, self._n_slots, k))
        # Slots stay without gaps: items from behind move into those that became free.
        moved = kept[kept >= k]
        self.store.put(np.setdiff1d(np.arange(k), kept), self.store.get(moved))
        self._cut(k)

    def _swap(self, rng: np.random.Generator) -> None:
        slot, before = int(rng.integers(self._n_slots)), self._partial
        self._partial = int(self.store.get(np.array([slot]))[0])
        if before is None:
            self._fill(slot)
        else:
            self.store.put(np.array([slot]), np.array([before], np.uint64))

    def _move(self, rng: np.random.Generator) -> None:
        slot = int(rng.integers(self._n_slots))
        self._partial = int(self.store.get(np.array([slot]))[0])
        self._fill(slot)

    def _drop_partial(self) -> None:
        self._partial = None

    def _fill(self, slot: int) -> None:
        """Move the last item into a slot that became free."""
        last = self._n_slots - 1
        self.store.put(np.array([slot]), self.store.get(np.array([last])))
        self._cut(last)

    def _cut(self, size: int) -> None:
        self.store.cut(size)
        self._n_slots = size

    def _put(self, batch: Sequence[Batch], chosen: Sequence[Positions], slots: Positions) -> None:
        """Put the chosen positions of each part into slots."""
        if not len(slots):
            return
        if self.join == "CJ":
            parts = np.split(slots, np.cumsum([len(positions) for positions in chosen])[:-1])
            work = [Put(self.store, part, *where) for part, *where in zip(batch, chosen, parts, strict=True)]
            list(self.pool.map(put_newcomers, work))
            return
        firsts = np.concatenate([[0], np.cumsum([len(part) for part in batch])[:-1]])
        buckets = len(batch)
        scattered = list(self.pool.map(repartition, [(part, int(at), buckets) for part, at in zip(batch, firsts, strict=True)]))
        wanted = np.concatenate([positions + first for positions, first in zip(chosen, firsts, strict=True)])
        owner = _bucket_of(wanted, buckets)
        joins = [
            Join(self.store, [pieces[bucket] for pieces in scattered], wanted[owner == bucket], slots[owner == bucket])
            for bucket in range(buckets)
        ]
        list(self.pool.map(join_and_put, joins))


def _bucket_of(positions: Positions, buckets: int) -> npt.NDArray[np.uint64]:
    return (positions.astype(np.uint64) * np.uint64(_KNUTH) >> np.uint64(7)) % np.uint64(buckets)
