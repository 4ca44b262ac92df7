"""Scores where labels arrive later: as known, which no later label changes, and final."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.labels.label_batches import label_batch
from modyn_dagster.catalog.registration.batches import Announcement, register_labels
from modyn_dagster.keys import key_of, ordinal_of
from tests.pipeline.late_labels import Label, add_labels, arrive_later, at_once, cells_of, delayed, replace_labels, replay_outcome
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, amount

Worlds = Callable[..., World]


BALANCED = {"strategy": {"kind": "balanced"}, "limit": 40, "window": "all"}


@pytest.mark.soak("labels")
def test_late_labels_change_no_decision_training_set_model_or_score_as_known(world_of: Worlds) -> None:
    world = world_of(amount(selection=BALANCED))
    world.deliver(range(6))
    labels = delayed(at_once(world), 1)
    arrive_later(world)
    add_labels(world, labels)
    before, cells = replay_outcome(world, "before"), cells_of(world)
    # Corrections of all labels, and labels that never came until now.
    corrections = [replace(each, value=1 - each.value, arrival=9, known_at=5) for each in labels]
    missing = [Label(key_of(ordinal, position), 0, 9) for ordinal in range(6) for position in range(0, 40)]
    add_labels(world, [*corrections, *missing])
    world.reload()
    assert replay_outcome(world, "after") == before
    again = cells_of(world)
    shown = [(cell.value, cell.undefined, cell.n_labelled, cell.address) for cell in cells]
    assert [(cell.value, cell.undefined, cell.n_labelled, cell.address) for cell in again] == shown
    assert [cell.final_value for cell in again] != [cell.final_value for cell in cells]
    assert all(cell.final_arrival == 9 and cell.final_labelled == cell.n_samples for cell in again)


def test_final_scores_follow_labels_as_they_arrive_and_then_stay(world_of: Worlds) -> None:
    world = world_of(amount())
    world.deliver(range(4))
    labels = at_once(world)
    arrive_later(world)
    replace_labels(world, [replace(each, arrival=each.arrival + 9) for each in labels if each.key % 2])
    run = world.live_until_idle("by_amount").run
    assert [trigger.state for trigger in world.triggers(run.id)] == ["skipped"]
    replace_labels(world, [each if each.key % 2 else replace(each, arrival=each.arrival + 9) for each in labels])
    world.replay("by_amount")
    before = cells_of(world)
    assert {cell.final_labelled for cell in before} == {cell.n_samples for cell in before}
    assert all(cell.n_labelled == cell.n_samples // 2 for cell in before if cell.n_samples)
    assert any(cell.value != cell.final_value for cell in before)
    world.replay("by_amount")
    assert cells_of(world) == before
    # A correction of everything: the scores as known stay.
    add_labels(world, [replace(each, value=1 - each.value, arrival=20, known_at=1) for each in labels])
    world.reload()
    world.replay("by_amount")
    after = cells_of(world)
    assert [cell.value for cell in after] == [cell.value for cell in before]
    assert [cell.final_value for cell in after] != [cell.final_value for cell in before]
    assert {cell.final_arrival for cell in after} == {20}


def test_final_scores_wait_for_the_last_file_of_those_that_arrive_together(world_of: Worlds) -> None:
    world = world_of(amount())
    world.deliver(range(4))
    labels = at_once(world)
    arrive_later(world)
    add_labels(world, labels)
    with world.platform.transaction() as conn:
        files = [Announcement(key, {"paths": [key]}) for key in "ab"]
        register_labels(conn, world.platform.read_view(conn, DATASET).row.id, files)
        conn.execute(sa.update(label_batch).values(arrival=20))
    corrections = [replace(each, value=1 - each.value, arrival=20, known_at=1) for each in labels]
    ends = []
    for number, key in enumerate("ab"):
        add_labels(world, [each for each in corrections if each.key % 2 == number])
        with world.platform.transaction() as conn:
            conn.execute(sa.update(label_batch).where(label_batch.c.partition_key == key).values(state="ingested"))
        world.reload()
        world.replay("by_amount")
        ends.append([(cell.final_arrival, cell.final_value) for cell in cells_of(world)])
    assert {arrival for arrival, _ in ends[0]} == {3}
    assert {arrival for arrival, _ in ends[1]} == {20}
    replace_labels(world, labels + corrections)
    world.replay("by_amount", name="at once")
    assert [(cell.final_arrival, cell.final_value) for cell in cells_of(world)] == ends[1]


def test_a_score_with_too_few_known_labels_is_undefined_and_says_so(world_of: Worlds) -> None:
    pipeline = amount()
    pipeline["evaluation"]["min_coverage"] = 0.6
    world = world_of(pipeline)
    world.deliver(range(4))
    labels = at_once(world)
    arrive_later(world)
    add_labels(world, [each if each.key % 2 else replace(each, arrival=9) for each in labels])
    world.replay("by_amount")
    cells = [cell for cell in cells_of(world) if cell.metric == "accuracy"]
    assert cells
    for cell in cells:
        assert cell.value is None
        assert cell.undefined == f"{cell.n_labelled} of {cell.n_samples} samples have a label, below min_coverage 0.6"
        assert cell.final_value is not None


@pytest.mark.soak("labels")
def test_estimates_need_no_label_of_the_samples_and_are_calibrated_on_those_known_then(world_of: Worlds) -> None:
    pipeline = amount(every=40)
    pipeline["evaluation"] |= {"metrics": ["accuracy", "estimated_accuracy"], "min_coverage": 0.5}
    world = world_of(pipeline, split={"train": 0.5, "calibrate": 0.3, "evaluate": 0.2})
    world.deliver(range(6))
    labels = at_once(world)
    arrive_later(world)
    early = [each for each in labels if each.arrival < 3]
    add_labels(world, early)
    world.replay("by_amount")
    before = cells_of(world)
    unlabelled = [cell for cell in before if cell.n_samples and cell.n_labelled == 0]
    assert {cell.value is None for cell in unlabelled if cell.metric == "accuracy"} == {True}
    estimates = [cell for cell in unlabelled if cell.metric == "estimated_accuracy"]
    assert estimates
    assert all(cell.value is not None and cell.low is not None for cell in estimates)
    # Wrong labels of the calibration samples, with the last batch.
    add_labels(world, [replace(each, value=1 - each.value, arrival=5, known_at=5) for each in early])
    reached = world.platform.view(DATASET).batches[4].time_max
    triggers = [each.ordinal for each in world.triggers(world.run("by_amount", "replay").id) if ordinal_of(each.point) < 5]
    world.reload()
    world.replay("by_amount")
    after = cells_of(world)
    closed = [cell.ordinal in triggers and reached is not None and cell.interval_end <= reached for cell in before]
    assert any(closed)
    for cell, again, is_closed in zip(before, after, closed, strict=True):
        if is_closed:
            assert (again.value, again.low, again.n_labelled) == (cell.value, cell.low, cell.n_labelled)
            if cell.metric == "estimated_accuracy" and cell.value is not None:
                assert again.final_value != cell.final_value
