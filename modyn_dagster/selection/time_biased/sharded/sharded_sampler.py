"""Base of samplers in shards: layout of batches, rounds that wait, their calls over a pool, and the state."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.distributed.in_process import InProcessPool
from modyn_dagster.distributed.protocols import Pool
from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.sampler_state import State, checked_elapsed, checked_keys, decoded, encoded, no_keys
from modyn_dagster.selection.time_biased.sampler import Sampler
from modyn_dagster.selection.time_biased.sharded.rounds import Assignment, Round, advance
from modyn_dagster.selection.time_biased.sharded.shard import Shard, Step, compacted

#: Keys of batches that wait at most, 8 bytes each, unless the sample has more; keys that are a range do not count, rounds do.
MOST_WAITING: Final = 1 << 22


def laid_out(keys: KeyArray, shards: int, ordinal: int) -> list[KeyArray]:
    """Parts of a batch by shard: equal stretches in order, the first of them on shard ``ordinal % shards``.

    The turn spreads what does not divide evenly, as batches of one key. No other layout would change the law of a sample.

    >>> [part.tolist() for part in laid_out(np.arange(5, dtype=np.uint64), 3, 1)]
    [[4], [0, 1], [2, 3]]
    """
    parts = np.array_split(keys, shards)
    return [parts[(shard - ordinal) % shards] for shard in range(shards)]


class ShardedSampler(Sampler):
    """A sampler whose items are in shards that never exchange any.

    An update decides at once, and shards carry out their part later, all rounds since the last time in one call of the pool:
    when the sample or the state is asked for, or when many keys wait. The bits depend on the seed, the stream and the number
    of shards; not on the pool, its workers, or when the calls happen. Where a call fails in an update, the batch is taken in
    all the same, and the next call catches up.

    Args:
        seed: of the choices.
        shards: their number, at least 1.
        pool: makes the calls, one per shard.
    """

    def __init__(self, seed: int, shards: int, pool: Pool | None) -> None:
        if shards < 1 or shards != int(shards):
            raise ValueError(f"shards must be at least 1 and a whole number, not {shards!r}")
        self.seed, self.shards = seed, int(shards)
        self._pool = InProcessPool() if pool is None else pool
        self._ordinal = 0
        self._held = [Shard() for _ in range(self.shards)]
        self._rounds: list[list[Round]] = [[] for _ in range(self.shards)]
        self._n_waiting = 0

    def update_parts(self, parts: Sequence[npt.NDArray[np.uint64]], elapsed: float = 1.0) -> None:
        """Let what is kept grow older by ``elapsed``, then take in a batch that is in parts already.

        Args:
            parts: ``uint64[n]`` per shard, of any sizes. The arrays are not kept.
            elapsed: see ``update``.

        Raises:
            ValueError: as of ``update``; or another number of parts than shards.
        """
        if len(parts) != self.shards:
            raise ValueError(f"parts must be as many as the {self.shards} shards, not {len(parts)}")
        self._take([checked_keys(part) for part in parts], checked_elapsed(elapsed))

    def flush(self) -> None:
        """Let the shards catch up with all updates. Nothing else changes: it only decides when the calls happen.

        Raises:
            WorkerLost: the pool lost its workers; nothing else is, and the next call catches up.
        """
        self._advanced()

    def rename(self, renamed: Callable[[KeyArray], KeyArray]) -> None:
        """Give items other keys; see ``Sampler``."""
        for shard in self._advanced():
            shard.keys = renamed(shard.keys)
            if shard.partial is not None:
                shard.partial = int(renamed(np.array([shard.partial], np.uint64))[0])

    @abstractmethod
    def _decide(self, new: Sequence[int], elapsed: float, ordinal: int) -> Sequence[Sequence[Step]]:
        """Steps of every shard for a batch of which ``new[i]`` items came to shard ``i``."""

    def _update(self, keys: KeyArray, elapsed: float) -> None:
        self._take(laid_out(keys, self.shards, self._ordinal), elapsed)

    def _take(self, parts: Sequence[KeyArray], elapsed: float) -> None:
        told = self._decide([len(part) for part in parts], elapsed, self._ordinal)
        for rounds, steps, part in zip(self._rounds, told, parts, strict=True):
            if steps:
                batch = compacted(part) if any(step.READS_BATCH for step in steps) else no_keys()
                rounds.append(Round(self._ordinal, steps, batch))
                self._n_waiting += 1 if isinstance(batch, range) else 1 + len(batch)
        self._ordinal += 1
        # A shard that travels for fewer keys than its own would cost more than they do.
        if self._n_waiting >= max(MOST_WAITING, sum(len(shard.keys) for shard in self._held)):
            self.flush()

    def _advanced(self) -> list[Shard]:
        """Shards after all updates."""
        behind = [i for i, rounds in enumerate(self._rounds) if rounds]
        if behind:
            work = [Assignment(self._held[i], (self.KIND, "shard", i), self.seed, self._rounds[i]) for i in behind]
            # Kept only once all are there: a call that fails leaves the sampler as it was.
            for i, shard in zip(behind, list(self._pool.map(advance, work)), strict=True):
                self._held[i] = shard
            self._rounds = [[] for _ in range(self.shards)]
            self._n_waiting = 0
        return self._held

    def _load_decisions(self, state: Mapping[str, Any], held: Sequence[Shard]) -> None:
        """Load what decisions depend on, beside the ordinal; ``ValueError`` where it does not fit the shards."""

    def _content(self) -> State:
        shards = [{"keys": encoded(shard.keys), "partial": shard.partial} for shard in self._advanced()]
        return {"seed": self.seed, "ordinal": self._ordinal, "shards": shards}

    def _load(self, state: Mapping[str, Any]) -> None:
        if len(state["shards"]) != self.shards:
            raise ValueError(f"a state of {len(state['shards'])} shards does not belong to a sampler of {self.shards}")
        held = [Shard(decoded(shard["keys"]), shard["partial"]) for shard in state["shards"]]
        self._load_decisions(state, held)
        self._held = held
        self._rounds, self._n_waiting = [[] for _ in range(self.shards)], 0
        # Random numbers follow from both: those of the sampler that wrote the state go on.
        self.seed, self._ordinal = state["seed"], state["ordinal"]
