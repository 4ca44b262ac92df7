"""Strategy `similar_to_unlabelled` in pipelines with late labels: candidates, newest model, both backends, live and replay."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from modyn_dagster.data.split import TRAIN
from modyn_dagster.errors import ConfigError
from modyn_dagster.keys import key_of, ordinal_of
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.models import predictor_of
from modyn_dagster.pipeline.preflight import require_runnable
from modyn_dagster.pipeline.replay.lookahead import serial_reason
from modyn_dagster.pipeline.stages.training_set.similar_selection import newest_unlabelled
from modyn_dagster.pipeline.stages.training_set.stage import select_training_set
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.selection.presampling.similar_choice import choose_similar
from modyn_dagster.selection.presampling.similarity import Choice, Samples, directions
from modyn_dagster.training.data import EMBEDDING, OUTPUTS
from tests.pipeline.late_labels import Label, add_labels, arrive_later, at_once, known_by_brute_force, replace_labels
from tests.pipeline.measuring import delete
from tests.pipeline.test_online import keys_of, rows_of
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, Content, amount

Worlds = Callable[..., World]
DAYS = 6
SIMILAR = {"kind": "similar_to_unlabelled", "size": 25, "unlabelled": 20}


def similar(name: str = "similar", **fields: Any) -> Content:
    """A pipeline with embeddings, four triggers, and a window of everything."""
    strategy = {key: fields.pop(key) for key in ("choice", "layer", "size", "unlabelled") if key in fields}
    content = amount(name, every=55, selection={"strategy": SIMILAR | strategy, "window": "all", "partition_size": 8, **fields})
    content["training"] |= {"model": {"name": "mlp", "hidden": [4]}}
    return content


def two_days_late(world: World) -> list[Label]:
    """Labels of which two of three come two batches after their samples, and the rest with them."""
    return [replace(each, arrival=each.arrival + (2 if each.key % 3 else 0)) for each in at_once(world)]


def late_world(world_of: Worlds, *pipelines: Content) -> tuple[World, list[Label]]:
    world = world_of(*pipelines)
    world.deliver(range(DAYS))
    labels = two_days_late(world)
    arrive_later(world)
    add_labels(world, labels)
    return world, labels


@pytest.mark.parametrize("choice", ["proportional", pytest.param("nearest", marks=pytest.mark.soak("laws-results"))])
def test_training_sets_are_those_of_the_definition_with_the_model_before(world_of: Worlds, choice: Choice) -> None:
    world, labels = late_world(world_of, similar(choice=choice))
    world.replay("similar")
    run = world.run("similar", "replay")
    triggers, sets, rows = world.triggers(run.id), keys_of(world, "similar"), rows_of(world, "similar")
    assert len(triggers) == 4
    for trigger, chosen, row in list(zip(triggers, sets, rows, strict=True))[1:]:
        context = context_of(world.platform, "similar", trigger.partition_key)
        known = known_by_brute_force(labels, ordinal_of(trigger.point))
        stream = [key_of(day, i) for day in range(DAYS) for i in range(40) if key_of(day, i) <= trigger.key]
        newest = np.array([key for key in stream if key not in known][-20:], np.uint64)
        candidates = np.array([key for key in stream if key in known], np.uint64)
        predictor = predictor_of(world.platform, run, context.earlier_models[-1], context.view)
        values = [predictor.tapped(context.view.reader.read(keys), {OUTPUTS, EMBEDDING}) for keys in (newest, candidates)]
        predictor.close()
        unlabelled = Samples(newest, values[0][OUTPUTS].argmax(axis=1), directions(values[0][EMBEDDING]))
        pool = Samples(candidates, np.array([known[int(key)] for key in candidates]), directions(values[1][EMBEDDING]))
        first = Samples(unlabelled.keys[::-1], unlabelled.classes[::-1], unlabelled.directions[::-1])
        salt = seed_for(run.seed, "similar_to_unlabelled", trigger.ordinal)
        expected = choose_similar(first, partial(iter, [pool]), [candidates], 25, choice=choice, salt=salt)
        assert chosen == expected.keys.tolist()
        assert row.details["n_compared"] == 20
        assert row.details["n_uniform"] == expected.n_uniform
        assert row.n_pool == len(candidates)


def test_live_equals_replay_on_either_backend(world_of: Worlds) -> None:
    world, _ = late_world(world_of, similar(), similar("on_postgres", backend="postgres", partition_size=100))
    world.live_until_idle("similar")
    list(finish_live_run(world.platform, world.run("similar", "live")))
    for name in ("similar", "on_postgres"):
        world.replay(name)
    live, replayed = (world.outcome(world.run("similar", mode)) for mode in ("live", "replay"))
    assert len(live["models"]) == 4
    assert live == replayed
    assert keys_of(world, "on_postgres") == keys_of(world, "similar")
    assert serial_reason(world.platform.pipeline("similar")) is not None


@pytest.mark.soak("replays")
def test_before_the_first_model_and_without_unlabelled_samples_the_set_is_uniform(world_of: Worlds) -> None:
    uniform = similar("uniform")
    uniform["selection"]["strategy"] = {"kind": "uniform", "size": 25}
    world, _ = late_world(world_of, similar(), uniform)
    for name in ("similar", "uniform"):
        world.replay(name, world.keys()[:3])
    assert keys_of(world, "similar")[0] == keys_of(world, "uniform")[0]
    assert keys_of(world, "similar")[1] != keys_of(world, "uniform")[1]
    assert rows_of(world, "similar")[0].details["n_compared"] == 0
    replace_labels(world, at_once_again(world))
    for name in ("similar", "uniform"):
        world.replay(name, world.keys()[:3], name="labelled")
    outcomes = [world.outcome(world.run_named(name, "labelled"))["training_sets"] for name in ("similar", "uniform")]
    assert outcomes[0] == outcomes[1]


def at_once_again(world: World) -> list[Label]:
    """All labels with their samples, after their place in the batches was given up; their values matter little."""
    return [Label(key_of(day, i), (day + i) % 2, day) for day in range(DAYS) for i in range(40)]


@pytest.mark.soak("replays")
def test_labels_that_arrive_after_a_trigger_change_nothing_of_it(world_of: Worlds) -> None:
    world, labels = late_world(world_of, similar())
    world.replay("similar")
    first = world.outcome(world.run("similar", "replay"))
    newest = world.triggers(world.run("similar", "replay").id)[-1]
    later = max(ordinal_of(newest.point), 4) + 1
    changed = [replace(each, value=1 - each.value) if each.arrival >= later else each for each in labels]
    assert changed != labels
    replace_labels(world, changed)
    world.replay("similar", name="other future")
    again = world.outcome(world.run_named("similar", "other future"))
    assert again["training_sets"] == first["training_sets"]
    for trigger in world.triggers(world.run("similar", "replay").id):
        # The same bytes, or an error.
        select_training_set(context_of(world.platform, "similar", trigger.partition_key))


@pytest.mark.soak("replays")
def test_deleted_samples_are_neither_compared_with_nor_chosen(world_of: Worlds) -> None:
    world, labels = late_world(world_of, similar())
    gone = [key_of(day, i) for day in range(DAYS) for i in range(0, 40, 2)]
    delete(world, gone)
    world.replay("similar")
    view = world.platform.view(DATASET)
    until = key_of(4, 11)
    known = known_by_brute_force(labels, 4)
    expected = [
        key_of(day, i)
        for day in range(5)
        for i in range(40)
        if key_of(day, i) <= until and key_of(day, i) not in known and key_of(day, i) not in gone
    ]
    for n in (1, 7, 1000):
        assert newest_unlabelled(view.up_to(4), until, n).tolist() == expected[-n:]
    for keys, row in zip(keys_of(world, "similar"), rows_of(world, "similar"), strict=True):
        assert len(keys) == min(25, row.n_pool)
        assert not set(keys) & set(gone)


def test_only_train_samples_are_compared_with(world_of: Worlds) -> None:
    world = world_of(similar(), split={"train": 0.6, "evaluate": 0.4})
    world.deliver(range(3))
    arrive_later(world)
    view = world.platform.view(DATASET)
    keys = newest_unlabelled(view, view.last_key, 1000)
    assert len(keys) == sum(int(batch.n_train or 0) for batch in view.batches)
    assert (view.sides(keys) == TRAIN).all()


@pytest.mark.soak("replays")
def test_a_ratio_and_a_limit_bound_the_set_as_in_other_strategies(world_of: Worlds) -> None:
    by_ratio = similar("by_ratio")
    by_ratio["selection"]["strategy"] = {"kind": "similar_to_unlabelled", "ratio": 0.3}
    world, _ = late_world(world_of, by_ratio, similar("limited", limit=11), similar("whole", size=10_000))
    for name in ("by_ratio", "limited", "whole"):
        world.replay(name, world.keys()[:3])
    assert [row.n_samples for row in rows_of(world, "by_ratio")] == [int(0.3 * row.n_pool) for row in rows_of(world, "by_ratio")]
    assert [row.n_samples for row in rows_of(world, "limited")] == [11] * 2
    assert [row.n_samples for row in rows_of(world, "whole")] == [row.n_pool for row in rows_of(world, "whole")]


def late(world: World, **changes: Any) -> Any:
    dataset = world.platform.dataset(DATASET)
    assert dataset.label is not None
    return dataset.model_copy(update={"label": dataset.label.model_copy(update={"arrives": "later"} | changes)})


def test_it_is_refused_where_it_cannot_work_by_pipeline_and_field(world_of: Worlds) -> None:
    scheduled = similar("scheduled")
    scheduled["selection"] |= {"strategy": {"kind": "uniform"}, "schedule": [{"from_trigger": 2, "strategy": SIMILAR}]}
    world = world_of(similar(), similar("layered", layer="7"), scheduled)
    pipeline = world.platform.pipeline("similar")
    require_runnable(pipeline, late(world))
    with pytest.raises(ConfigError, match=r"similar.*selection.strategy.kind.*samples without a label.*label.arrives"):
        require_runnable(pipeline, world.platform.dataset(DATASET))
    with pytest.raises(ConfigError, match=r"scheduled.*selection.schedule.0.strategy.kind"):
        require_runnable(world.platform.pipeline("scheduled"), world.platform.dataset(DATASET))
    with pytest.raises(ConfigError, match=r"selection.strategy.kind.*the label is a target"):
        require_runnable(pipeline, late(world, kind="target"))
    with pytest.raises(ConfigError, match=r"selection.strategy.layer.*no such layer"):
        require_runnable(world.platform.pipeline("layered"), late(world))


@pytest.mark.soak("replays")
def test_the_outputs_of_a_named_layer_may_be_compared(world_of: Worlds) -> None:
    world, _ = late_world(world_of, similar(choice="nearest"), similar("by_layer", choice="nearest", layer="0"))
    for name in ("similar", "by_layer"):
        world.replay(name, world.keys()[:3])
    assert keys_of(world, "similar")[0] == keys_of(world, "by_layer")[0]
    assert keys_of(world, "similar")[1:] != keys_of(world, "by_layer")[1:]
