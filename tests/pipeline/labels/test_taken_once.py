"""Samplers where labels arrive later: each sample is taken once, with the batch at which its first label is known."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fastpath import Partition
from modyn_dagster.catalog.triggers import TriggerRow
from modyn_dagster.data.split import TRAIN
from modyn_dagster.keys import ORIGIN, key_of, ordinal_of
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set, select_samples, select_training_set
from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.selection.online import build_sampler, decay_rate, unit_of
from modyn_dagster.selection.time_biased import Sampler
from modyn_dagster.spec.online import BTBSSpec, OnlineSpec
from tests.pipeline.deleting import delete
from tests.pipeline.labels.first_labels import FirstLabel, between, first_labels
from tests.pipeline.labels.laws import DAYS, GAP, Delivery, drawn_labels
from tests.pipeline.labels.pipelines import STRATEGIES, pipeline_of
from tests.pipeline.late_labels import arrive_later
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, ROWS
from tests.variants import represented

Worlds = Callable[..., World]

SAMPLERS = [name for name in STRATEGIES if name.startswith(("rtbs", "ttbs", "btbs", "uniform_reservoir", "sliding_window"))]
SHOWN = ("rtbs reset", "sliding_window")


class ByHand:
    """A sampler fed batch by batch: samples whose labels came late, then those of the batch, cut at triggers.

    Attributes:
        taken: time at which each sample was taken.
    """

    def __init__(self, spec: OnlineSpec, seed: int, order: Sequence[FirstLabel], times: Sequence[int]) -> None:
        self.spec, self.seed, self.order, self.times = spec, seed, order, times
        self.taken: dict[int, int] = {}
        self.begin_anew(ORIGIN, -1)

    def begin_anew(self, key: int, ordinal: int) -> None:
        """Begin after a key, that of the trigger with this ordinal."""
        sampler = build_sampler(self.spec, seed_for(self.seed, "online", ordinal))
        assert isinstance(sampler, Sampler)
        self.sampler, self.begin, self.since = sampler, key, key
        self.time: int | None = None

    def sample_at(self, until: int) -> list[int]:
        """The sample at a key."""
        ends = [key_of(batch, ROWS - 1) for batch in range(DAYS)]
        for end in [*(end for end in ends if self.since < end < until), until]:
            new, batch = [each.key for each in between(self.order, self.since, end) if each.key > self.begin], ordinal_of(end)
            late, own = [key for key in new if ordinal_of(key) < batch], [key for key in new if ordinal_of(key) == batch]
            for part in (late, own):
                if part:
                    self._update(part, self.times[batch])
            # Time goes on without new samples too.
            if self.time != self.times[batch]:
                self._update([], self.times[batch])
            self.since = end
        return sorted(self.sampler.sample().tolist())

    def _update(self, keys: Sequence[int], time: int) -> None:
        elapsed = 0.0 if self.time is None else (time - self.time) / 1e6
        self.sampler.update(np.array(keys, np.uint64), elapsed / unit_of(self.spec))
        self.time = time
        self.taken |= dict.fromkeys(keys, time)


@pytest.fixture
def sampled(world_of: Worlds) -> Callable[[str, int], tuple[World, list[TriggerRow], ByHand]]:
    """Replays a pipeline with a sampler on drawn labels; returns its triggers too, and the same sampler to be fed by hand."""

    def make(variant: str, seed: int) -> tuple[World, list[TriggerRow], ByHand]:
        world = world_of(pipeline_of(variant), split={"train": 0.7, "calibrate": 0.3})
        world.deliver(range(DAYS))
        arrive_later(world, GAP)
        labels = drawn_labels(seed)
        Delivery.of(labels, seed)(world)
        world.replay("late")
        run, view = world.run("late", "replay"), world.platform.view(DATASET)
        spec = world.platform.spec_of(run).selection.strategies[0]
        assert isinstance(spec, OnlineSpec)
        times = [int(view.times(batch)[view.positions_on(batch, TRAIN)].max().astype(np.int64)) for batch in view.batches]
        return world, world.triggers(run.id, "trained"), ByHand(spec, run.seed, first_labels(world, labels), times)

    return make


@pytest.mark.long
@represented("variant", SAMPLERS, "labels", *SHOWN)
def test_a_sampler_takes_each_sample_once_with_the_batch_that_brings_its_first_label(sampled, variant: str) -> None:
    world, triggers, by_hand = sampled(variant, 11)
    for trigger in triggers:
        assert keys_at(world, trigger) == by_hand.sample_at(trigger.key)
        if by_hand.spec.reset == "after_trigger":
            by_hand.begin_anew(trigger.key, trigger.ordinal)
    assert len(triggers) > 2
    assert any(ordinal_of(each.key) < each.batch for each in by_hand.order if each.key in by_hand.taken)


@pytest.mark.soak("labels")
@pytest.mark.long
def test_unbiased_weights_count_the_age_of_a_sample_from_the_time_at_which_it_was_taken(sampled) -> None:
    world, triggers, by_hand = sampled("btbs unbiased", 12)
    assert isinstance(by_hand.spec, BTBSSpec)
    decay, late = decay_rate(by_hand.spec.decay), 0
    for trigger in triggers:
        keys, now = by_hand.sample_at(trigger.key), by_hand.times[ordinal_of(trigger.key)]
        parts = partitions_of(world, trigger)
        assert keys_at(world, trigger) == keys
        expected = [np.exp(decay * (now - by_hand.taken[key]) / 1e6) for key in keys]
        np.testing.assert_allclose(np.concatenate([part.weights for part in parts]), expected, rtol=1e-5)
        late += sum(by_hand.taken[key] != by_hand.times[ordinal_of(key)] for key in keys)
    assert late > 10


@pytest.mark.long
def test_a_state_computed_again_is_the_same_also_after_a_deletion(sampled) -> None:
    world, triggers, _ = sampled("rtbs", 13)
    contexts = [context_of(world.platform, "late", trigger.partition_key) for trigger in triggers]
    remove_states(world)
    for context in reversed(contexts):
        select_training_set(context)
    delete(world, keys_at(world, triggers[1])[::3])
    context = context_of(world.platform, "late", triggers[-1].partition_key)
    gone_on = select_samples(context)
    remove_states(world)
    begun_again = select_samples(context)
    assert begun_again.state == gone_on.state
    assert begun_again.details == gone_on.details
    assert begun_again.selection.n_pool == gone_on.selection.n_pool


def partitions_of(world: World, trigger: TriggerRow) -> list[Partition]:
    context = context_of(world.platform, "late", trigger.partition_key)
    assert context.training_set is not None
    return list(open_training_set(context, context.training_set).partitions())


def keys_at(world: World, trigger: TriggerRow) -> list[int]:
    return [int(key) for part in partitions_of(world, trigger) for key in part.keys]


def remove_states(world: World) -> None:
    for path in (world.platform.home / "training_sets").rglob("*.state.json"):
        path.unlink()
