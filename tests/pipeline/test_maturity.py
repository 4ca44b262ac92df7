"""Mature cohorts: scores as known, performance triggers and calibration use samples of an age, labelled or not."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from modyn_dagster.catalog.database.mapping import as_datetime64
from modyn_dagster.catalog.decisions import measurements_after
from modyn_dagster.catalog.results.evaluations import EvaluationRow, list_evaluations
from modyn_dagster.data.split import CALIBRATE, TRAIN
from modyn_dagster.keys import KeyRange, ordinal_of
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.stages.evaluation.cells.estimates import calibration_of
from tests.pipeline.late_labels import Label, add_labels, arrive_later, at_once, known_by_brute_force, replace_labels
from tests.pipeline.measuring import performance
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, Content, amount

Worlds = Callable[..., World]


def judged(pipeline: Content, **fields: object) -> Content:
    """A pipeline with other fields of its evaluation."""
    return pipeline | {"evaluation": pipeline["evaluation"] | fields}


def slow_negatives(labels: Sequence[Label]) -> list[Label]:
    """Labels of class 1 with their samples, those of class 0 two batches later, every eleventh never."""
    return [replace(each, arrival=each.arrival + 2 * (each.value == 0)) for each in labels if each.key % 11]


def cells_of(world: World, mode: str) -> list[EvaluationRow]:
    with world.platform.transaction() as conn:
        cells = list_evaluations(conn, world.run("by_amount", mode).id)
    return [cell for cell in cells if cell.metric == "accuracy"]


@pytest.mark.soak("replays")
def test_a_score_as_known_waits_until_its_samples_are_mature(world_of: Worlds) -> None:
    world = world_of(judged(amount(), maturity="2d"))
    world.deliver(range(8))
    labels = slow_negatives(at_once(world))
    arrive_later(world)
    add_labels(world, labels)
    world.replay("by_amount")
    view, cells = world.platform.view(DATASET), cells_of(world, "replay")
    times = {(batch.ordinal << 32) + row: time for batch in view.batches for row, time in enumerate(view.times(batch))}
    trained = {trigger.ordinal: ordinal_of(trigger.point) for trigger in world.triggers(world.run("by_amount", "replay").id)}
    mature = 0
    for cell in cells:
        start, end = as_datetime64(cell.interval_start), as_datetime64(cell.interval_end)
        inside = [key for key, time in times.items() if start <= time < end]
        old = [batch.ordinal for batch in view.batches if view.times(batch)[-1] >= end + np.timedelta64(2, "D")]
        if not old:
            young = sum(times[key] + np.timedelta64(2, "D") > max(times.values()) for key in inside)
            assert (cell.value, cell.undefined) == (None, f"{young} of {len(inside)} samples are younger than maturity 2d")
            continue
        known = known_by_brute_force(labels, max(old[0], trained[cell.ordinal]))
        assert cell.n_labelled == sum(key in known for key in inside)
        assert cell.value is not None
        mature += 1
        # All labels that ever come are known by then.
        assert (cell.value, cell.n_labelled) == (cell.final_value, cell.final_labelled)
    assert 0 < mature < len(cells)


@pytest.mark.soak("replays")
def test_without_maturity_the_same_scores_are_those_of_the_labels_that_are_known_early(world_of: Worlds) -> None:
    world = world_of(amount())
    world.deliver(range(8))
    labels = slow_negatives(at_once(world))
    arrive_later(world)
    add_labels(world, labels)
    world.replay("by_amount")
    cells = cells_of(world, "replay")
    assert any(cell.value != cell.final_value for cell in cells)
    assert any((cell.n_labelled or 0) < (cell.final_labelled or 0) for cell in cells)


@pytest.mark.soak("replays")
def test_live_and_replay_have_the_same_scores_as_known_and_a_live_score_follows_once_it_is_mature(world_of: Worlds) -> None:
    world = world_of(judged(amount(), maturity="2d"))
    world.deliver(range(8))
    labels = slow_negatives(at_once(world))
    arrive_later(world)
    add_labels(world, labels)
    world.live_until_idle("by_amount")
    world.replay("by_amount")
    live, replay = (world.outcome(world.run("by_amount", mode))["evaluations"] for mode in ("live", "replay"))
    assert set(live) <= set(replay)
    waiting = [cell for cell in cells_of(world, "live") if cell.value is None]
    assert waiting
    world.deliver(range(8, 11))
    world.live_until_idle("by_amount")
    followed = {(cell.ordinal, cell.interval_start): cell for cell in cells_of(world, "live")}
    for cell in waiting:
        assert followed[cell.ordinal, cell.interval_start].value is not None
    world.replay("by_amount", name="longer")
    longer = world.outcome(world.run_named("by_amount", "longer"))["evaluations"]
    assert set(world.outcome(world.run("by_amount", "live"))["evaluations"]) <= set(longer)


@pytest.mark.soak("replays")
def test_coverage_is_that_of_the_mature_cohort(world_of: Worlds) -> None:
    world = world_of(judged(amount(), maturity="2d", min_coverage=0.6))
    world.deliver(range(8))
    labels = at_once(world)
    arrive_later(world)
    # At the end of its interval no sample has a label; later nine of ten have, and half of those of the second interval.
    late = [
        replace(each, arrival=each.arrival + 2)
        for each in labels
        if each.key % 10 and (ordinal_of(each.key) not in (2, 3) or each.key % 2)
    ]
    add_labels(world, late)
    world.replay("by_amount")
    reasons = {cell.undefined for cell in cells_of(world, "replay")}
    assert any(reason is None for reason in reasons)
    assert any(reason is not None and "below min_coverage 0.6" in reason for reason in reasons)
    assert any(reason is not None and "younger than maturity 2d" in reason for reason in reasons)


@pytest.mark.soak("replays")
def test_a_performance_trigger_decides_on_mature_samples_alone(world_of: Worlds) -> None:
    world = world_of(performance(every=20, decision={"rule": "threshold", "value": -1.0}, maturity="1d"))
    world.deliver(range(7))
    labels = at_once(world)
    arrive_later(world)
    add_labels(world, [replace(each, arrival=each.arrival + 1 * (each.value == 0)) for each in labels if each.key % 7])
    world.live_until_idle("by_performance")
    world.replay("by_performance")
    decisions = world.decisions(world.run("by_performance", "replay"))
    assert world.decisions(world.run("by_performance", "live")) == decisions
    view = world.platform.view(DATASET)
    stream = view.keys_on(TRAIN, KeyRange(-1, view.last_key))
    times = view.reader.store.timestamps(stream)
    first, judged_until = decisions[0][0], decisions[0][0]
    for point, _, _, _, reason, score, _, details in decisions[1:]:
        old = [key for key in stream[times + np.timedelta64(1, "D") <= times[stream == point][0]].tolist() if key > first]
        new = [key for key in old if key > judged_until]
        young = np.count_nonzero((stream > first) & (stream <= point)) - len(old)
        assert details["n_immature"] == young
        assert (score is None) == (not new)
        if not new:
            assert reason == f"no new sample is 1d old, {young} are younger"
            continue
        assert details["n_samples"] == len([key for key in new if key % 7])
        judged_until = new[-1]
    assert judged_until > first


def test_a_label_free_trigger_judges_all_samples_and_is_calibrated_on_mature_ones(world_of: Worlds) -> None:
    rule = {"rule": "threshold", "value": -1.0}
    world = world_of(performance(every=20, decision=rule, maturity="6h", label_free=True), split={"train": 0.6, "calibrate": 0.4})
    world.deliver(range(4))
    labels = at_once(world)
    arrive_later(world)
    add_labels(world, labels)
    world.replay("by_performance")
    run, view = world.run("by_performance", "replay"), world.platform.view(DATASET)
    with world.platform.transaction() as conn:
        rows = measurements_after(conn, run.id, str(run.previous_model), -1, 100)
    counts = []
    for row in rows:
        window = row.details[""]["calibrate_window"]
        keys = view.keys_on(CALIBRATE, KeyRange(window["after"], window["until"]))
        reached = view.times(view.batches[ordinal_of(row.point)])[-1]
        counts.append(len(keys))
        assert window["samples"] == np.count_nonzero(view.reader.store.timestamps(keys) + np.timedelta64(6, "h") <= reached)
        assert row.details[""]["window"]["samples"] == view.count(KeyRange(row.details[""]["window"]["after"], row.point), TRAIN)
    assert counts


@pytest.mark.soak("replays")
def test_estimates_are_calibrated_on_mature_samples_and_do_not_wait(world_of: Worlds) -> None:
    pipeline = judged(amount(every=40), metrics=["accuracy", "estimated_accuracy"], maturity="2d")
    world = world_of(pipeline, split={"train": 0.5, "calibrate": 0.3, "evaluate": 0.2})
    world.deliver(range(8))
    labels = at_once(world)
    arrive_later(world)
    replace_labels(world, labels)
    world.replay("by_amount")
    run = world.run("by_amount", "replay")
    with world.platform.transaction() as conn:
        cells = list_evaluations(conn, run.id)
    waiting = {
        (c.ordinal, c.interval_start) for c in cells if c.metric == "accuracy" and c.undefined and "younger" in c.undefined
    }
    estimates = [c for c in cells if c.metric == "estimated_accuracy" and (c.ordinal, c.interval_start) in waiting]
    assert any(cell.value is not None for cell in estimates)
    newest = world.triggers(run.id, "trained")[-1]
    for position in range(8):
        context = context_of(world.platform, "by_amount", newest.partition_key, world.platform.view(DATASET))
        context = replace(context, view=context.view.labelled_as_of(position))
        assert context.training_set is not None
        window = KeyRange(context.training_set.after, context.training_set.until)
        keys = context.view.keys_on(CALIBRATE, window, labelled=True)
        reached = context.view.times(context.view.batches[position])[-1]
        old = context.view.reader.store.timestamps(keys) + np.timedelta64(2, "D") <= reached
        assert calibration_of(context).keys.tolist() == keys[old].tolist()
