"""A tick ends in time whatever the backlog: it stops and the next one goes on, with the same end, and it measures nothing.

Clocks here go on by a second whenever they are looked at, so that what a tick does in its time is counted and not raced.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import count, pairwise

import pytest

from modyn_dagster.catalog.decisions import measurements_after
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.decide import driver
from modyn_dagster.pipeline.decide import tick as ticks
from modyn_dagster.pipeline.decide.tick import Attempt, Tick
from modyn_dagster.pipeline.measure import measurement_rows, measurer
from modyn_dagster.pipeline.stages.evaluation import pending_evaluations
from modyn_dagster.pipeline.stages.evaluation.pending_evaluations import PendingScan, scan_pending
from modyn_dagster.pipeline.stages.trigger_stages import evaluation_stage
from tests.pipeline.measuring import drift, performance
from tests.pipeline.pending import triggers_to_evaluate
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, triggered

#: Of looks at the clock; each is followed by at most one decision or one commit.
MOST_LOOKS = 20


class Clock:
    """Counts the looks at it: each takes a second."""

    def __init__(self) -> None:
        self._seconds = count()
        self.now = 0

    def __call__(self) -> float:
        self.now = next(self._seconds)
        return float(self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    ticking = Clock()
    for module in (driver, pending_evaluations):
        monkeypatch.setattr(module, "monotonic", ticking)
    return ticking


@pytest.fixture
def tick(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[[World, str], Tick]:
    """One tick that fails when it takes too long, or measures anything or opens a model."""

    def never(*_: object) -> None:
        raise AssertionError("a tick never measures")

    def ticked(world: World, pipeline: str) -> Tick:
        begin = clock.now
        with monkeypatch.context() as patch:
            for name in ("predictor_of", "answer_drift", "answer_performance", "answer_detector", "Measurer"):
                patch.setattr(measurer, name, never)
            found = ticks.tick(world.platform, pipeline, lambda *_: Attempt.NONE)
        assert clock.now - begin <= MOST_LOOKS
        return found

    return ticked


def often() -> dict:
    """A policy with a point at every sample that never fires after the first one, and needs nothing measured."""
    cost = {"signal": "latency", "regret_per_training_second": 1e15, "seconds": {"fixed": 1}}
    return triggered("by_cost", {"kind": "cost", "every": 1} | cost)


def quiet(kind: Callable[..., dict], **fields: object) -> dict:
    """A policy that has much measured and never fires after the first point."""
    direction = {} if kind is drift else {"direction": "higher"}
    return kind(every=2, decision={"rule": "threshold", "value": 1e9} | direction, **fields)


def test_a_tick_over_a_long_backlog_stops_and_the_next_ones_end_where_a_replay_does(world_of, tick):
    world = world_of(often())
    world.deliver(range(2))
    world.replay("by_cost")
    expected = world.decisions(world.run("by_cost", "replay"))
    first = tick(world, "by_cost").train
    world.train("by_cost", first)
    decided = [len(world.decisions(world.run("by_cost", "live")))]
    while (now := tick(world, "by_cost")).message.endswith("the next tick goes on"):
        decided.append(len(world.decisions(now.run)))
    assert len(decided) > 3, "the backlog is longer than what a tick decides"
    assert max(after - before for before, after in pairwise(decided)) <= MOST_LOOKS
    assert (now.train, now.measure, now.evaluate) == (None, None, True)
    assert world.decisions(now.run) == expected


@pytest.mark.soak("replays")
@pytest.mark.parametrize("kind", [drift, performance])
def test_a_tick_computes_no_embedding_and_no_score_however_much_there_is_to_measure(world_of, tick, kind):
    world = world_of(quiet(kind, of="embeddings") if kind is drift else quiet(kind))
    [name] = world.platform.project.pipelines
    world.deliver(range(3))
    world.train(name, tick(world, name).train)
    for _ in range(3):
        now = tick(world, name)
        assert now.measure is not None
        assert now.train is None
    world.measure(name)
    while (now := tick(world, name)).message.endswith("the next tick goes on"):
        assert now.measure is None
    assert now.evaluate
    world.replay(name)
    assert world.decisions(now.run) == world.decisions(world.run(name, "replay"))


@pytest.mark.soak("replays")
def test_a_tick_holds_some_rows_of_what_was_measured_and_not_all(world_of, tick, monkeypatch):
    monkeypatch.setattr(measurement_rows, "ROWS_AT_ONCE", 7)
    read: list[int] = []
    inner = measurements_after

    def counted(*arguments):
        rows = inner(*arguments)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(measurement_rows, "measurements_after", counted)
    world = world_of(quiet(performance))
    world.deliver(range(3))
    world.train("by_performance", tick(world, "by_performance").train)
    world.measure("by_performance")
    while (now := tick(world, "by_performance")).message.endswith("the next tick goes on"):
        pass
    world.replay("by_performance")
    assert now.evaluate
    assert world.decisions(now.run) == world.decisions(world.run("by_performance", "replay"))
    assert max(read) <= 7
    assert len(world.decisions(now.run)) > 50


@pytest.mark.soak("replays")
def test_a_look_for_models_to_judge_stops_and_the_next_one_goes_on(world_of, clock, monkeypatch):
    monkeypatch.setattr(pending_evaluations, "MODELS_AT_ONCE", 2)
    world = world_of(triggered("often", {"kind": "amount", "every": 20}))
    world.deliver(range(3))
    run = world.live_until_idle("often").run
    assert triggers_to_evaluate(world.platform, run) == []
    looked, looks = 0, list[PendingScan]()
    while not looks or not looks[-1].complete:
        begin = clock.now
        looks.append(scan_pending(world.platform, run, looked, seconds=1))
        looked = looks[-1].looked
        assert clock.now - begin <= 4
    assert looked == 6
    assert len(looks) > 1

    world.deliver([3])
    run = world.run("often", "live")
    while (now := world.tick("often")).train is not None:
        world.train("often", now.train)
    every = [trigger.ordinal for trigger in triggers_to_evaluate(world.platform, now.run)]
    assert every == list(range(8))
    found = scan_pending(world.platform, now.run, seconds=0)
    assert ([trigger.ordinal for trigger in found.due], found.complete) == ([6, 7], False)
    for trigger in found.due:
        context = context_of(world.platform, "often", trigger.partition_key)
        evaluation_stage(replace(context, view=world.platform.view(DATASET)), finished=False)
    assert [trigger.ordinal for trigger in triggers_to_evaluate(world.platform, now.run)] == list(range(6))
