"""Replays: what they continue, what they refuse, and what splits and backends do to them."""

import pytest

from modyn_dagster.catalog.results.training_sets import find_training_set
from modyn_dagster.data.split import TRAIN
from modyn_dagster.errors import BatchGap, ConfigError, RunError, UnknownName
from modyn_dagster.keys import ordinal_of
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.replay.walk import BatchReplayed
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set
from modyn_dagster.pipeline.training_stream import training_stream
from tests.projects.tiny import DATASET, amount, timed


def test_a_replay_walks_batches_in_order_and_ends_finished(world_of):
    world = world_of(amount())
    world.deliver(range(5))
    events = world.replay("by_amount")
    walked = [event for event in events if isinstance(event, BatchReplayed)]
    assert [event.batch.partition_key for event in walked] == [f"day_{day:02d}" for day in range(5)]
    stages = [(event.stage, event.partition_key) for event in events if not isinstance(event, BatchReplayed)]
    assert stages[:6] == [(stage, f"000001-00000{i}") for i in range(2) for stage in ("training_set", "model", "evaluation")]
    run = world.run("by_amount", "replay")
    assert (run.state, run.last_ordinal, len(world.triggers(run.id, "trained"))) == ("finished", 4, 2)


@pytest.mark.soak("replays")
def test_launched_again_nothing_is_trained_twice_and_everything_is_yielded_again(world_of):
    world = world_of(timed())
    world.deliver(range(8))
    world.replay("by_time")
    first = world.outcome(world.run("by_time", "replay"))
    again = world.replay("by_time")
    assert world.outcome(world.run("by_time", "replay")) == first
    assert all(not event.fresh for event in again if not isinstance(event, BatchReplayed))
    assert len([event for event in again if isinstance(event, BatchReplayed)]) == 8


@pytest.mark.soak("replays")
def test_a_replay_in_two_parts_ends_as_one_in_one_go(world_of):
    world = world_of(timed())
    world.deliver(range(8))
    keys = world.keys()
    world.replay("by_time", keys[:3], name="parts")
    world.replay("by_time", keys[3:], name="parts")
    parts = world.outcome(world.run("by_time", "replay"))
    world.replay("by_time", name="whole")
    assert world.outcome(world.run("by_time", "replay")) == parts


def test_restart_begins_a_new_replay_and_leaves_the_old_one_readable(world_of):
    world = world_of(amount())
    world.deliver(range(4))
    world.replay("by_amount")
    old = world.run("by_amount", "replay")
    before = world.outcome(old)
    world.replay("by_amount", restart=True)
    new = world.run("by_amount", "replay")
    assert new.id > old.id
    assert world.outcome(new) == world.outcome(old) == before


def test_another_seed_is_another_replay(world_of):
    world = world_of(timed(every="2d", selection={"limit": 30}))
    world.deliver(range(4))
    world.replay("by_time", seed=1)
    one = world.outcome(world.run("by_time", "replay"))
    world.replay("by_time", seed=2)
    two = world.outcome(world.run("by_time", "replay"))
    assert one["triggers"] == two["triggers"]
    assert one["training_sets"] != two["training_sets"]


def test_a_selection_with_a_gap_is_refused_naming_both_batches(world_of):
    world = world_of(amount())
    world.deliver(range(6))
    keys = world.keys()
    with pytest.raises(BatchGap, match="'day_01', but the selection begins at 'day_03'"):
        world.replay("by_amount", [keys[0], keys[1], keys[3]])
    world.replay("by_amount", keys[:2])
    with pytest.raises(BatchGap, match="'day_01', but the selection begins at 'day_04'"):
        world.replay("by_amount", keys[4:])


def test_unknown_batches_and_pipelines_are_named(world_of):
    world = world_of(amount())
    world.deliver(range(2))
    with pytest.raises(UnknownName, match="no batch 'day_77'"):
        world.replay("by_amount", ["day_77"])
    with pytest.raises(UnknownName, match="no pipeline 'by_luck'; known: by_amount"):
        world.replay("by_luck")


def test_a_replay_may_begin_in_the_middle_of_the_stream(world_of):
    world = world_of(amount(every=40))
    world.deliver(range(5))
    world.replay("by_amount", world.keys()[2:])
    run = world.run("by_amount", "replay")
    assert [ordinal_of(trigger.key) for trigger in world.triggers(run.id)] == [2, 3, 4]


def test_both_backends_write_the_same_training_sets(world_of):
    selection = {"limit": 50, "partition_size": 16}
    world = world_of(
        amount("on_arrow", selection=selection | {"backend": "arrow"}),
        amount("on_postgres", selection=selection | {"backend": "postgres"}),
        split={"train": 0.7, "evaluate": 0.3},
    )
    world.deliver(range(6))
    outcomes = []
    for name in ("on_arrow", "on_postgres"):
        world.replay(name)
        outcomes.append(world.outcome(world.run(name, "replay")))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0]["training_sets"]


def test_only_the_train_side_is_counted_and_trained_on(world_of):
    world = world_of(amount(every=50), split={"train": 0.6, "calibrate": 0.1, "evaluate": 0.3})
    world.deliver(range(6))
    world.replay("by_amount")
    run = world.run("by_amount", "replay")
    view = world.platform.view(DATASET)
    triggers = world.triggers(run.id, "trained")
    assert triggers
    for index, trigger in enumerate(triggers):
        with world.platform.transaction() as conn:
            row = find_training_set(conn, trigger.id)
        assert row is not None
        keys = open_training_set(context_of(world.platform, run.pipeline, trigger.partition_key), row).keys()
        assert len(keys) == 50
        assert (view.sides(keys) == TRAIN).all()
        assert training_stream(view, -1).count(-1, trigger.key) == 50 * (index + 1)


def test_every_evaluation_sample_is_scored_once_per_model(world_of):
    world = world_of(amount(), split={"train": 0.5, "evaluate": 0.5})
    world.deliver(range(5))
    world.replay("by_amount")
    view = world.platform.view(DATASET)
    expected = sum(len(view.evaluation_positions(batch)) for batch in view.batches)
    cells = world.outcome(world.run("by_amount", "replay"))["evaluations"]
    for ordinal in {cell[0] for cell in cells}:
        assert sum(cell[4] for cell in cells if cell[0] == ordinal and cell[3] == "accuracy") == expected


def test_an_unsuitable_metric_is_refused_before_anything_starts(world_of):
    world = world_of(amount(evaluation={"intervals": {"every": "1d"}, "metrics": ["mse"]}))
    world.deliver(range(2))
    with pytest.raises(ConfigError, match=r"pipeline by_amount: evaluation\.metrics"):
        world.replay("by_amount")


def test_a_project_without_ingested_batches_says_so(world_of):
    with pytest.raises(RunError, match="holds no ingested batch"):
        world_of(amount()).replay("by_amount", [])
