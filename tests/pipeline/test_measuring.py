"""Measuring by ticks, by measuring runs and by replays."""

import errno
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import count

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.decisions import measurements_after, record_measurements
from modyn_dagster.catalog.timings import stage_timing
from modyn_dagster.errors import RunError, StaleRun
from modyn_dagster.pipeline.decide import measure_ahead as ahead
from modyn_dagster.pipeline.decide.attempts import give_up_attempt
from modyn_dagster.pipeline.decide.driver import Stop, advance
from modyn_dagster.pipeline.decide.manual_trigger import trigger_now
from modyn_dagster.pipeline.decide.measure_ahead import measure_ahead, measure_patiently
from modyn_dagster.pipeline.decide.waiting import Patience
from modyn_dagster.pipeline.measure.measurer import Measurer
from modyn_dagster.pipeline.replay.walk import BatchReplayed
from modyn_dagster.pipeline.training_stream import training_stream
from tests.pipeline.measuring import deliver_with_shift, drift, kept, measured_points, performance
from tests.projects.tiny import DATASET, amount


@pytest.mark.soak("replays")
def test_a_policy_that_needs_nothing_measured_has_decisions_and_no_measurement(world_of):
    world = world_of(amount(every=30))
    world.deliver(range(3))
    assert world.live_until_idle("by_amount").measure is None
    run = world.run("by_amount", "live")
    assert [row[3:5] for row in world.decisions(run)] == [(True, "30 samples")] * 4
    assert measured_points(world, run) == []


def test_a_tick_measures_nothing_and_asks_until_it_is_measured(world_of):
    world = world_of(drift())
    world.deliver([0, 1])
    first = world.tick("by_drift")
    assert first.train is not None
    world.train("by_drift", first.train)
    asked = world.tick("by_drift").measure
    assert asked is not None
    assert asked == world.tick("by_drift").measure
    assert (asked.batch, asked.model_hash) == ("day_00", world.run("by_drift", "live").previous_model)
    [batch_0, batch_1] = world.measure("by_drift")
    assert [batch.batch.partition_key for batch in (batch_0, batch_1)] == ["day_00", "day_01"]
    assert batch_0.decisions[0].point == asked.point
    run = world.run("by_drift", "live")
    assert run.cursor == first.train.point, "only the sensor moves the run"
    idle = world.tick("by_drift")
    assert (idle.measure, idle.train) == (None, None)
    expected = [*batch_0.decisions, *batch_1.decisions]
    assert [row[4] for row in world.decisions(idle.run)[1:]] == [row.reason for row in expected]
    assert world.measure("by_drift") == []


def test_a_measuring_run_shows_a_batch_once_and_pauses_grow_while_no_other_is_measured(world_of, monkeypatch):
    world = world_of(drift())
    world.deliver(range(3))
    trained = world.tick("by_drift").train
    assert trained is not None
    world.train("by_drift", trained)
    tries, pauses = count(1), list[float]()

    def fails_four_times(*arguments):
        attempt = next(tries)
        with closing(measure_ahead(*arguments)) as measured:
            for number, event in enumerate(measured):
                if number == (1 if attempt < 4 else 2) and attempt < 5:
                    raise OSError(errno.ENOSPC, "no space left on device")
                yield event

    monkeypatch.setattr(ahead, "measure_ahead", fails_four_times)
    patience = Patience(3600, sleep=pauses.append)
    shown = [event.batch.partition_key for event in measure_patiently(world.platform, "by_drift", patience)]
    assert shown == ["day_00", "day_01", "day_02"]
    assert pauses == [0.5, 1, 2, 0.5]


def test_a_measuring_run_that_is_killed_has_measured_nothing_for_nothing(world_of):
    world = world_of(drift())
    world.deliver(range(3))
    trained = world.tick("by_drift").train
    assert trained is not None
    world.train("by_drift", trained)
    killed = measure_ahead(world.platform, "by_drift")
    next(killed)
    killed.close()
    measured = measured_points(world, world.run("by_drift", "live"))
    asked = world.tick("by_drift").measure
    assert asked is not None
    assert measured
    assert asked.point > measured[-1]
    rows = kept(world)
    world.live_until_idle("by_drift")
    assert kept(world)[: len(rows)] == rows, "what was measured before is not measured again"
    world.replay("by_drift")
    assert world.decisions(world.run("by_drift", "live")) == world.decisions(world.run("by_drift", "replay"))


@pytest.mark.soak("replays")
def test_ticks_and_measuring_runs_at_once_make_every_trigger_once(world_of):
    world = world_of(drift(), performance())
    deliver_with_shift(world, range(6))
    for name in ("by_drift", "by_performance"):
        with ThreadPoolExecutor(4) as pool:
            busy = True
            while busy:
                ticks = [each.result() for each in [pool.submit(world.tick, name) for _ in range(4)]]
                trains = {tick.train.partition_key: tick.train for tick in ticks if tick.train is not None}
                assert len(trains) <= 1
                for trigger in trains.values():
                    world.train(name, trigger)
                unmeasured = not trains and any(tick.measure is not None for tick in ticks)
                for each in [pool.submit(world.measure, name) for _ in range(2 * unmeasured)]:
                    each.result()
                busy = bool(trains) or unmeasured or world.tick(name).train is not None
        world.replay(name)
        live_run, replayed = (world.run(name, mode) for mode in ("live", "replay"))
        assert world.decisions(live_run) == world.decisions(replayed)
        assert world.outcome(live_run)["models"] == world.outcome(replayed)["models"]


def test_an_answer_to_another_question_is_no_answer(world_of):
    world = world_of(drift())
    world.deliver([0, 1])
    trained = world.tick("by_drift").train
    assert trained is not None
    world.train("by_drift", trained)
    world.measure("by_drift")
    run = world.run("by_drift", "live")
    with world.platform.transaction() as conn:
        row, *_ = measurements_after(conn, run.id, str(run.previous_model), run.cursor)
        record_measurements(conn, [replace(row, asked="something else", values={"": {"mmd": 7.0}})])
    asked = world.tick("by_drift").measure
    assert asked is not None
    assert asked.point == row.point
    world.measure("by_drift")
    with world.platform.transaction() as conn:
        again, *_ = measurements_after(conn, run.id, str(run.previous_model), run.cursor)
    assert again == row
    assert world.tick("by_drift").measure is None


@pytest.mark.soak("replays")
def test_a_measuring_run_that_was_overtaken_by_another_model_stops(world_of):
    world = world_of(drift())
    world.deliver(range(3))
    trained = world.tick("by_drift").train
    assert trained is not None
    world.train("by_drift", trained)
    overtaken = measure_ahead(world.platform, "by_drift")
    next(overtaken)
    by_hand = trigger_now(world.platform, "by_drift")
    world.train("by_drift", by_hand)
    with pytest.raises(StaleRun):
        list(overtaken)
    world.live_until_idle("by_drift")
    reasons = [trigger.reason for trigger in world.triggers(by_hand.run_id)]
    assert reasons[:2] == ["no model yet", "manual"]


def test_a_manual_trigger_waits_for_nothing_measured_while_it_trains(world_of):
    world = world_of(drift())
    world.deliver(range(2))
    assert world.tick("by_drift").train is not None
    assert world.measure("by_drift") == []


def test_without_a_live_run_there_is_nothing_to_measure_for(world_of):
    with pytest.raises(RunError, match="no open live run"):
        world_of(drift()).measure("by_drift")


def seconds_by_batch(conn: sa.Connection, run_id: int, stage: str) -> dict[int, float]:
    of_stage = (stage_timing.c.run_id == run_id) & (stage_timing.c.stage == stage)
    rows = conn.execute(
        sa.select(stage_timing.c.batch_ordinal, sa.func.sum(stage_timing.c.seconds)).where(of_stage).group_by("batch_ordinal")
    )
    return dict(rows.tuples().all())


@pytest.mark.soak("replays")
def test_deciding_and_measuring_are_in_the_ledger_by_batch(world_of):
    world = world_of(drift())
    world.deliver(range(3))
    world.live_until_idle("by_drift")
    world.replay("by_drift")
    for mode in ("live", "replay"):
        run = world.run("by_drift", mode)
        with world.platform.transaction() as conn:
            decided, measured = (seconds_by_batch(conn, run.id, stage) for stage in ("decide", "measure"))
        assert set(decided) == set(measured) == {0, 1, 2}
        assert all(seconds > 0 for seconds in [*decided.values(), *measured.values()])


def test_launched_again_a_replay_shows_every_decision_and_measures_nothing(world_of):
    world = world_of(drift())
    world.deliver(range(3))
    first = [event for event in world.replay("by_drift") if isinstance(event, BatchReplayed)]
    rows = kept(world)
    again = [event for event in world.replay("by_drift") if isinstance(event, BatchReplayed)]
    assert [event.decisions for event in again] == [event.decisions for event in first]
    assert all(event.decisions for event in again)
    assert [event.is_last for event in again] == [False, False, True]
    assert kept(world) == rows


def test_a_step_pauses_with_what_it_decided_and_goes_on_where_it_paused(world_of):
    world = world_of(performance(decision={"rule": "threshold", "value": 0.01}))
    world.deliver(range(5))
    world.replay("by_performance", name="whole")
    whole = world.run("by_performance", "replay")
    world.replay("by_performance", world.keys()[:1], name="steps")
    run = world.run("by_performance", "replay")
    view = world.platform.view(DATASET)
    stops: list[Stop] = []
    with Measurer(world.platform) as measurer:
        while not stops or stops[-1] is Stop.PAUSED:
            before = run.cursor
            step = advance(world.platform, run, training_stream(view, run.origin), measurer.of(run, view), seconds=0)
            stops.append(step.stop)
            run = step.run
            assert (run.cursor > before) is (step.stop is not Stop.AT_END)
    assert len(stops) == 9
    assert world.decisions(run) == world.decisions(whole)


def test_the_first_model_of_a_run_is_waited_for_again_when_its_training_failed(world_of):
    world = world_of(drift(decision={"rule": "threshold", "value": 1e9}) | {"on_failure": "continue", "max_attempts": 1})
    world.deliver(range(2))
    first = world.tick("by_drift").train
    assert first is not None
    assert give_up_attempt(world.platform, world.run("by_drift", "live"), first, "boom")[1].state == "failed"
    second = world.tick("by_drift").train
    assert second is not None
    assert (second.ordinal, second.reason) == (1, "no model yet")
    world.train("by_drift", second)
    world.live_until_idle("by_drift")
    decisions = world.decisions(world.run("by_drift", "live"))
    assert [row[3] for row in decisions] == [True, True] + [False] * (len(decisions) - 2)
