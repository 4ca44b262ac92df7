"""Coordinators that are wrong, and the laws of samples in shards that see it."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from modyn_dagster.selection.time_biased.sharded import coordinator
from modyn_dagster.selection.time_biased.sharded.coordinator import Coordinator
from modyn_dagster.selection.time_biased.sharded.shard import Lift, Release
from tests.selection.test_sharded_laws import (
    SOAK,
    assert_partial_items_move,
    assert_samples_are_those_of_the_serial_sampler,
    assert_shards_give_by_their_sizes,
)


def shares(_: np.random.Generator, sizes: Sequence[int], k: int) -> list[int]:
    """Each shard's share of ``k``, rounded, in place of a hypergeometric draw."""
    exact = [k * size / max(1, sum(sizes)) for size in sizes]
    counts = [math.floor(share) for share in exact]
    for shard in sorted(range(len(sizes)), key=lambda shard: counts[shard] - exact[shard])[: k - sum(counts)]:
        counts[shard] += 1
    return counts


def _lift_from(choose: Callable[[Coordinator, np.random.Generator], int]) -> Callable[..., None]:
    def lift(self: Coordinator, rng: np.random.Generator, *, settles: bool) -> None:
        shard = choose(self, rng)
        if self._owner in (None, shard):
            self._tell(shard, Lift(settles), -1 + int(settles and self._owner is not None))
        else:
            self._tell(self._owner, Release(settles), int(settles))
            self._tell(shard, Lift(settles), -1)
        self._owner = shard

    return lift


def _any_shard(self: Coordinator, rng: np.random.Generator) -> int:
    return int(rng.choice(np.flatnonzero(self._sizes)))


def _same_shard(self: Coordinator, rng: np.random.Generator) -> int:
    if self._owner is not None and self._sizes[self._owner]:
        return self._owner
    return int(rng.choice(np.repeat(np.arange(len(self._sizes)), self._sizes)))


@pytest.mark.parametrize(
    ("place", "name", "fault", "law", "runs"),
    [
        pytest.param(coordinator, "deal", shares, assert_samples_are_those_of_the_serial_sampler, 300, id="rounded shares"),
        pytest.param(Coordinator, "_lift", _lift_from(_same_shard), assert_partial_items_move, 2000, id="same", marks=SOAK),
        pytest.param(Coordinator, "_lift", _lift_from(_any_shard), assert_shards_give_by_their_sizes, 2000, id="any", marks=SOAK),
    ],
)
def test_a_coordinator_that_is_wrong_is_seen(place, name, fault, law, runs, monkeypatch):
    monkeypatch.setattr(place, name, fault)
    with pytest.raises(AssertionError):
        law(runs)
