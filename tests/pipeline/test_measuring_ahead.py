"""Points measured by workers: the same measurements, decisions and models, whatever the policy does with them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.decisions import measurement
from modyn_dagster.pipeline.measure.measurer import Measurer
from modyn_dagster.pipeline.replay.measuring_ahead import MeasuringAhead, PointMeasurement, measure_in_worker
from modyn_dagster.triggering import Measurement, MeasurementSpec
from tests.pipeline.deleting import delete
from tests.pipeline.inline_pool import InlinePool
from tests.pipeline.late_labels import add_labels, arrive_later, at_once
from tests.pipeline.measuring import deliver_with_shift, drift, performance
from tests.pipeline.same_end import both, forget_evaluations, replayed
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, Content

SPLIT = {"train": 0.6, "calibrate": 0.1, "evaluate": 0.3}
WINDOWS: Content = {"by": "amount", "reference": 30, "current": 15}
DRIFT: Content = drift(every=10, windows=WINDOWS)["trigger"]
PERFORMANCE: Content = performance(every=10)["trigger"]
POLICIES: dict[str, Content] = {
    "embeddings": DRIFT,
    "columns": DRIFT | {"features": {"of": "columns"}},
    "outputs": DRIFT | {"features": {"of": "outputs"}},
    "quantile": DRIFT | {"decision": {"rule": "quantile", "window": 4, "quantile": 0.3}},
    "warm": DRIFT | {"warmup": {"intervals": 6, "policy": {"kind": "amount", "every": 25}}},
    "performance": PERFORMANCE,
    "forecast": PERFORMANCE | {"forecast": {"window": 3}},
    "misclassified": PERFORMANCE | {"decision": {"rule": "misclassifications", "value": 4, "expected_accuracy": "calibrate"}},
    "both": {"kind": "ensemble", "policies": {"a": DRIFT, "b": PERFORMANCE}, "rule": "any"},
    "cooldown": {"kind": "cooldown", "policy": DRIFT, "samples": 20},
}
#: Fires once, with its first model.
SELDOM: Content = POLICIES["columns"] | {"decision": {"rule": "threshold", "value": 9.0}}
#: Detectors read sample after sample, so nothing of theirs is dealt.
DETECTOR: Content = {"kind": "detector", "every": 20, "detector": {"name": "page_hinkley", "threshold": 1.0}}


def tried(trigger: Content) -> Content:
    content: Content = drift("tried")
    return content | {"trigger": trigger}


def measurements(world: World, name: str) -> list[Any]:
    """Rows of a replay without the number of its run."""
    run = world.run_named("tried", name)
    columns = [column for column in measurement.c if column.name not in ("id", "run_id", "created_at")]
    with world.platform.transaction() as conn:
        rows = conn.execute(sa.select(*columns).where(measurement.c.run_id == run.id).order_by(measurement.c.point))
        return [tuple(row) for row in rows]


def shifted(world_of: Callable[..., World], trigger: Content) -> World:
    world = world_of(tried(trigger), split=SPLIT)
    deliver_with_shift(world, range(8))
    return world


@pytest.mark.parametrize(
    "policy", [each if each == "columns" else pytest.param(each, marks=pytest.mark.soak("distributed")) for each in POLICIES]
)
def test_points_between_two_trainings_are_measured_by_workers(world_of, workers, policy: str) -> None:
    world = shifted(world_of, POLICIES[policy])
    alone = replayed(world, "tried", "alone")
    forget_evaluations(world)
    pool: InlinePool = workers(3)
    ahead = replayed(world, "tried", "workers", pool)
    assert ahead == alone
    rows = measurements(world, "workers")
    assert rows == measurements(world, "alone")
    assert pool.made.count("measure_in_worker") >= len(rows) > 5


@pytest.mark.soak("replays")
def test_points_that_wait_for_labels_are_measured_by_workers(world_of, workers) -> None:
    world = shifted(world_of, PERFORMANCE | {"min_coverage": 0.5, "decision": {"rule": "threshold", "value": -1.0}})
    labels = at_once(world)
    arrive_later(world)
    # Of every second batch most labels come a batch later.
    add_labels(world, [replace(each, arrival=each.arrival + (each.arrival % 2 and each.key % 3 > 0)) for each in labels])
    alone = replayed(world, "tried", "alone")
    forget_evaluations(world)
    pool: InlinePool = workers(3)
    assert replayed(world, "tried", "workers", pool) == alone
    rows = measurements(world, "workers")
    assert rows == measurements(world, "alone")
    reasons = [decision[4] for decision in world.decisions(world.run_named("tried", "workers"))]
    assert 3 < sum("below min_coverage" in reason for reason in reasons) < len(rows) - 3
    # Every guess was right: no point was measured twice, and none by the replay.
    assert pool.made.count("measure_in_worker") == len(rows)


@pytest.mark.soak("distributed")
def test_detectors_are_read_by_the_replay_alone(world_of, workers) -> None:
    world = shifted(world_of, DETECTOR)
    pool = workers(3)
    alone, ahead = both(world, "tried", pool)
    assert ahead == alone
    assert "measure_in_worker" not in pool.made


@pytest.mark.soak("distributed")
def test_points_that_workers_fail_on_are_measured_by_the_replay(world_of, workers) -> None:
    world = shifted(world_of, POLICIES["embeddings"])
    pool: InlinePool = workers(2, after=lambda made: OSError(5, "Input/output error") if len(pool.made) % 3 == 1 else made)
    alone, ahead = both(world, "tried", pool)
    assert ahead == alone


def dealt_points(world: World, name: str, workers: Callable[..., InlinePool]) -> list[PointMeasurement]:
    """Points that a replay deals to its workers."""
    dealt: list[PointMeasurement] = []
    replayed(world, "tried", name, workers(2, lambda item: dealt.append(item) if isinstance(item, PointMeasurement) else None))
    return dealt


@pytest.mark.soak("replays")
def test_a_guess_that_was_wrong_counts_once(world_of, workers) -> None:
    world = shifted(world_of, SELDOM)
    dealt = dealt_points(world, "whole", workers)
    replayed(world, "tried", "half", taken=2)
    run = world.run_named("tried", "half")
    assert run.previous_model is not None
    first, second = [item for item in dealt if item.point > run.cursor][:2]
    alone: list[int] = []

    def by_itself(point: int, _: MeasurementSpec) -> Measurement:
        alone.append(point)
        return {}

    measure = MeasuringAhead(world.platform, workers(2)).of(run, world.platform.view(DATASET), by_itself)
    between = first.point + 1
    # Three wrong guesses in a row would leave all points to the replay.
    for point, needs in [(first.point, first.needs), *[(between, first.needs)] * 2, (second.point, second.needs)]:
        measure(point, needs)
    assert alone == [between] * 2
    for _ in range(3):
        measure(between, first.needs)
    measure(second.point, second.needs)
    assert alone == [between] * 5 + [second.point]


@pytest.mark.soak("replays")
def test_a_worker_closes_the_measurer_of_an_earlier_run(world_of, workers, monkeypatch: pytest.MonkeyPatch) -> None:
    world = shifted(world_of, SELDOM)
    first, second = (dealt_points(world, name, workers)[0] for name in ("first", "second"))
    measure_in_worker(first)
    closed: list[Measurer] = []
    close = Measurer.close

    def closing(self: Measurer) -> None:
        closed.append(self)
        close(self)

    monkeypatch.setattr(Measurer, "close", closing)
    measure_in_worker(first)
    assert not closed
    measure_in_worker(second)
    # The new one closes what it has, too, before it loads a model.
    assert len(set(closed)) == 2


@pytest.mark.parametrize("policy", ["embeddings", pytest.param("performance", marks=pytest.mark.soak("distributed"))])
def test_workers_know_the_labels_that_the_replay_knows(world_of, workers, policy: str) -> None:
    world = shifted(world_of, POLICIES[policy])
    labels = [replace(each, arrival=each.arrival + 2 * (each.key % 2)) for each in at_once(world) if each.key % 7]
    arrive_later(world)
    add_labels(world, labels)
    pool = workers(3)
    alone, ahead = both(world, "tried", pool)
    assert ahead == alone
    assert {"measure_in_worker", "compute_in_worker"} <= {*pool.made}
    final = [cell[-3:] for cell in alone.slices]
    assert any(value is not None for value, _, _ in final)
    assert {arrival for _, _, arrival in final} == {max(label.arrival for label in labels)}


@pytest.mark.soak("distributed")
def test_points_that_were_measured_before_a_deletion_are_measured_again_after_it(world_of, workers) -> None:
    world = shifted(world_of, SELDOM)
    gone = [5 << 32 | position for position in range(30)]
    dealt: list[PointMeasurement] = []

    def disturb(item: object) -> None:
        if isinstance(item, PointMeasurement):
            dealt.append(item)
            if len(dealt) == 4:
                delete(world, gone)

    replayed(world, "tried", "workers", workers(20, disturb))
    replayed(world, "tried", "alone")
    # Windows before the deletion are those of other samples: the deleted ones were there yet.
    after = [row for row in measurements(world, "workers") if row[0] >> 32 >= 5]
    assert after
    assert after == [row for row in measurements(world, "alone") if row[0] >> 32 >= 5]
