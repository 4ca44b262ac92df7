"""Pipelines whose policies want something measured: live equals replay, and what a measurement is taken from."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.evaluations import list_predictions
from modyn_dagster.catalog.measurements import measurements_after, record_measurements
from modyn_dagster.catalog.tables import measurement
from modyn_dagster.catalog.timings import seconds_by_batch
from modyn_dagster.errors import ConfigError, RunError, StaleRun
from modyn_dagster.evaluation import Predictions, read_predictions
from modyn_dagster.ingestion.deletion import delete_samples
from modyn_dagster.ingestion.split import TRAIN
from modyn_dagster.keys import ORIGIN, KeyRange, ordinal_of
from modyn_dagster.pipeline.attempts import give_up_attempt
from modyn_dagster.pipeline.deciding import decide_onwards
from modyn_dagster.pipeline.driver import Stop, advance
from modyn_dagster.pipeline.manual import trigger_now
from modyn_dagster.pipeline.measure import Measurer
from modyn_dagster.pipeline.measuring_run import measure_ahead
from modyn_dagster.pipeline.platform import spec_of
from modyn_dagster.pipeline.policies import policy_of
from modyn_dagster.pipeline.replay import BatchWalked
from modyn_dagster.triggering import PerformanceNeed
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, ROWS, amount, triggered

SPLIT = {"train": 0.7, "calibrate": 0.3}


def drift(name: str = "by_drift", of: str = "embeddings", **fields):
    trigger = {
        "kind": "drift",
        "every": 15,
        "windows": {"by": "amount", "reference": 60, "current": 30},
        "metrics": {"mmd": {"metric": "mmd"}},
        "features": {"of": of},
        "decision": {"rule": "threshold", "value": 0.1},
    }
    return triggered(name, trigger | fields)


def performance(name: str = "by_performance", **fields):
    trigger = {"kind": "performance", "every": 20, "decision": {"rule": "threshold", "value": 0.7}}
    return triggered(name, trigger | fields)


POLICIES = [
    drift(),
    drift("by_columns", of="columns", decision={"rule": "quantile", "window": 3, "quantile": 0.3}),
    drift("by_outputs", of="outputs", metrics={"ks": {"metric": "ks"}}, decision={"rule": "p_value", "alpha": 0.01}),
    performance(),
    performance("by_misclassifications", decision={"rule": "misclassifications", "value": 4, "expected_accuracy": "calibrate"}),
    performance("label_free", label_free=True),
    triggered("by_detector", {"kind": "detector", "every": 20, "detector": {"name": "page_hinkley", "threshold": 3}}),
    triggered(
        "by_cost",
        {
            "kind": "cost",
            "every": 20,
            "signal": "misclassifications",
            "regret_per_training_second": 5,
            "seconds": {"fixed": 1, "per_sample": 0.01},
        },
    ),
    triggered(
        "by_vote",
        {
            "kind": "ensemble",
            "rule": "any",
            "policies": {
                "drift": drift()["trigger"],
                "capped": {"kind": "cooldown", "samples": 30, "policy": performance()["trigger"]},
                "amount": {"kind": "amount", "every": 70},
            },
        },
    ),
]


def deliver_with_shift(world: World, days, **options) -> None:
    """Points lie elsewhere from the fourth day on."""
    for day in days:
        world.deliver([day], shift=3.0 if day >= 4 else 0.0, **options)


@pytest.mark.parametrize("pipeline", POLICIES, ids=lambda content: content["name"])
def test_live_equals_replay_decision_by_decision(world_of, pipeline):
    world, name = world_of(pipeline, split=SPLIT), pipeline["name"]
    for days in ([0], [1, 2, 3], [], [4], [5, 6]):
        deliver_with_shift(world, days)
        world.live_until_idle(name)
    world.replay(name)
    live_run, replayed = (world.run(name, mode) for mode in ("live", "replay"))
    decisions = world.decisions(live_run)
    assert decisions == world.decisions(replayed)
    for part in ("triggers", "training_sets", "models"):
        assert world.outcome(live_run)[part] == world.outcome(replayed)[part]
    assert len(world.triggers(live_run.id, "trained")) >= 2, [row[4] for row in decisions]
    assert any(row[5] is not None for row in decisions)
    assert live_run.policy_state == replayed.policy_state


def test_drift_fires_where_the_points_move(world_of):
    world = world_of(drift(), split=SPLIT)
    deliver_with_shift(world, range(7))
    world.replay("by_drift")
    run = world.run("by_drift", "replay")
    assert [ordinal_of(trigger.key) for trigger in world.triggers(run.id)][:2] == [0, 4]


def test_performance_is_that_of_the_newest_model_on_what_is_new(world_of):
    world = world_of(performance(), split=SPLIT)
    deliver_with_shift(world, range(7))
    world.replay("by_performance")
    run, view = world.run("by_performance", "replay"), world.platform.view(DATASET)
    judged, model, before = 0, None, ORIGIN
    triggers = {trigger.point: trigger for trigger in world.triggers(run.id)}
    for point, _, _, fire, _, score, _, details in world.decisions(run):
        if model is not None:
            outputs = predicted_by(world, model)
            new = np.isin(outputs.keys, view.keys_on(TRAIN, KeyRange(before, point)))
            assert details["n_samples"] == new.sum() == 20
            assert score == np.mean(outputs.outputs[new].argmax(axis=1) == outputs.truth[new])
            assert fire is (score <= 0.7)
            judged += 1
        before, model = point, triggers.get(point, model)
    assert judged > 5


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


def test_every_block_is_computed_once_per_model_however_windows_overlap(world_of):
    windows = {"by": "amount", "reference": 200, "current": 60, "overlap": True}
    world = world_of(drift(every=5, windows=windows))
    world.deliver(range(5))
    first = world.tick("by_drift").train
    assert first is not None
    world.train("by_drift", first)
    run, view = world.run("by_drift", "live"), world.platform.view(DATASET)
    policy = policy_of(spec_of(run))
    policy.load_state_dict(run.policy_state)
    points = 0
    with Measurer(world.platform) as measurer:
        measure = measurer.of(run, view)
        for _ in range(3):
            points += len(list(decide_onwards(policy, run.cursor, view.stream(ORIGIN), measure)))
        assert points > 20
        assert measurer.work is not None
        assert measurer.work.n_passes == 5, "one per batch of 40 samples"


def test_deleted_samples_are_not_measured_and_change_no_decision_of_before(world_of):
    world = world_of(drift(decision={"rule": "threshold", "value": 1e9}), split={"train": 0.8, "evaluate": 0.2})
    world.deliver(range(2))
    world.live_until_idle("by_drift")
    before = world.decisions(world.run("by_drift", "live"))
    delete(world, [ordinal << 32 | position for ordinal in (0, 1) for position in range(20)])
    world.deliver(range(2, 4))
    delete(world, [2 << 32 | position for position in range(ROWS)])
    world.live_until_idle("by_drift")
    live_run = world.run("by_drift", "live")
    assert world.decisions(live_run)[: len(before)] == before
    with world.platform.transaction() as conn:
        rows = measurements_after(conn, live_run.id, str(live_run.previous_model), ORIGIN)
    in_batch_2 = [row.details[""]["current_window"]["samples"] for row in rows if ordinal_of(row.point) == 2]
    assert in_batch_2
    assert in_batch_2[-1] < 30
    assert all(row.details[""]["current_window"]["samples"] == 30 for row in rows if ordinal_of(row.point) == 1)


def test_a_window_whose_samples_are_all_gone_has_no_score_and_fires_nothing(world_of):
    world = world_of(drift())
    world.deliver(range(2))
    trained = world.tick("by_drift").train
    assert trained is not None
    world.train("by_drift", trained)
    delete(world, range(trained.key + 1))
    [*_, last] = world.measure("by_drift")
    assert [row.fire for row in last.decisions] == [False] * len(last.decisions)
    now = world.tick("by_drift")
    assert all(row[5] is None for row in world.decisions(now.run)[1:])


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
        assert sum(decided.values()) < sum(measured.values())


def test_launched_again_a_replay_shows_every_decision_and_measures_nothing(world_of):
    world = world_of(drift())
    world.deliver(range(3))
    first = [event for event in world.replay("by_drift") if isinstance(event, BatchWalked)]
    rows = kept(world)
    again = [event for event in world.replay("by_drift") if isinstance(event, BatchWalked)]
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
            step = advance(world.platform, run, view.stream(run.origin), measurer.of(run, view), seconds=0)
            stops.append(step.stop)
            run = step.run
            assert (run.cursor > before) is (step.stop is not Stop.AT_END)
    assert len(stops) == 9
    assert world.decisions(run) == world.decisions(whole)


def test_what_cannot_be_measured_is_said_before_anything_starts(world_of):
    calibrated = {"rule": "misclassifications", "value": 4, "expected_accuracy": "calibrate"}
    refused = {
        "no_share": (performance("no_share", decision=calibrated), "dataset tiny: split: must leave a `calibrate` share"),
        "no_labels": (performance("no_labels", label_free=True), "split: must leave a `calibrate` share: trigger of"),
        "wrong_metric": (performance("wrong_metric", metric="mae"), r"trigger\.metric: the dataset's label is a class: use acc"),
        "wrong_layer": (
            drift("wrong_layer", features={"of": "embeddings", "layer": "9"}),
            r"trigger\.features\.layer: mlp has no such layer; known: 0, 1, 2",
        ),
    }
    world = world_of(*(content for content, _ in refused.values()))
    world.deliver([0])
    for name, (_, text) in refused.items():
        with pytest.raises(ConfigError, match=text):
            world.replay(name)


def test_the_first_model_of_a_run_is_waited_for_again_when_its_training_failed(world_of):
    world = world_of(drift(decision={"rule": "threshold", "value": 1e9}) | {"on_failure": "continue", "max_attempts": 1})
    world.deliver(range(2))
    first = world.tick("by_drift").train
    assert first is not None
    assert give_up_attempt(world.platform, world.run("by_drift", "live"), first, "boom").state == "failed"
    second = world.tick("by_drift").train
    assert second is not None
    assert (second.ordinal, second.reason) == (1, "no model yet")
    world.train("by_drift", second)
    world.live_until_idle("by_drift")
    decisions = world.decisions(world.run("by_drift", "live"))
    assert [row[3] for row in decisions] == [True, True] + [False] * (len(decisions) - 2)


def test_a_policy_that_wants_something_measured_before_there_is_a_model_is_told_so(world_of):
    world = world_of(drift())
    world.deliver([0])
    run = world.tick("by_drift").run
    need = PerformanceNeed(0, KeyRange(ORIGIN, 5), "accuracy")
    with Measurer(world.platform) as measurer, pytest.raises(RunError, match="there is no model yet"):
        measurer.of(run, world.platform.view(DATASET))(5, {"": need})


def measured_points(world: World, run) -> list[int]:
    with world.platform.transaction() as conn:
        return list(
            conn.scalars(sa.select(measurement.c.point).where(measurement.c.run_id == run.id).order_by(measurement.c.point))
        )


def kept(world: World) -> list[tuple]:
    """Every measurement row with the moment it was written."""
    with world.platform.transaction() as conn:
        return [tuple(row) for row in conn.execute(sa.select(measurement).order_by(measurement.c.id))]


def predicted_by(world: World, trigger) -> Predictions:
    with world.platform.transaction() as conn:
        files = list_predictions(conn, trigger.id)
    return Predictions.concat([read_predictions(world.platform.home / file.path, file.checksum) for file in files])


def delete(world: World, keys) -> None:
    platform = world.platform
    delete_samples(platform.engine, platform.home, platform.view(DATASET).row, np.asarray(list(keys), dtype=np.uint64))
