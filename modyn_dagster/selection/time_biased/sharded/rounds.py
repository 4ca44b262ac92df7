"""Rounds of a shard: its steps at every update, and the call that carries them out.

A call is a function of values alone, so a worker that dies over it leaves nothing behind, and another makes it once more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.selection.time_biased.sharded.shard import Batch, Shard, Step


@dataclass(frozen=True, slots=True)
class Round:
    """Steps of a shard at one update.

    Attributes:
        ordinal: number of the update, from 0.
        steps: in order.
        batch: part of the batch that came to the shard; empty where no step needs it.
    """

    ordinal: int
    steps: Sequence[Step]
    batch: Batch


@dataclass(frozen=True, slots=True)
class Assignment:
    """A shard and the rounds it is behind; a value that travels to a worker.

    Attributes:
        shard: before the first round.
        path: names of the shard's place in the run, for its random numbers.
        seed: of the sampler.
        rounds: in order.
    """

    shard: Shard
    path: tuple[int | str, ...]
    seed: int
    rounds: Sequence[Round]

    def __str__(self) -> str:
        """Name of the work, for messages."""
        ordinals = f"updates {self.rounds[0].ordinal} to {self.rounds[-1].ordinal}" if self.rounds else "no updates"
        return f"{' '.join(map(str, self.path))}, {ordinals}"


def advance(assignment: Assignment) -> Shard:
    """Carry out the rounds of a shard and return it as it is then; the assignment stays as it was.

    Every round has random numbers of its own, by seed, shard and ordinal. So the result is a function of the assignment,
    whoever computes it and however often.
    """
    shard = Shard(assignment.shard.keys.copy(), assignment.shard.partial)
    for each in assignment.rounds:
        rng = rng_for(assignment.seed, *assignment.path, each.ordinal)
        for step in each.steps:
            step.apply(shard, each.batch, rng)
    return shard
