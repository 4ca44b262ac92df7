"""Predictions of one model over a long stream, divided among workers: the same files and scores, whatever goes wrong."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.evaluation.predictions.blocks import READ_BLOCKS, count_blocks, fixed_blocks
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.stages.evaluation.dealt import dealt_evaluations
from modyn_dagster.pipeline.stages.evaluation.stretch_parts import StretchPart, count_parts
from modyn_dagster.pipeline.stages.trigger_stages import evaluation_stage
from tests.examples import examples
from tests.pipeline.deleting import delete
from tests.pipeline.inline_pool import InlinePool
from tests.pipeline.same_end import both, forget_evaluations, replayed
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, Content, amount

SPLIT = {"train": 0.5, "evaluate": 0.5}
#: Batches of so few samples are a block each, and thus three reads together.
DAYS = 2 * READ_BLOCKS + 5
ROWS = 6
#: Trains once, in the middle of the stream.
ONCE = {"kind": "amount", "every": 60, "max_triggers": 1}


def pipeline(trigger: Content = ONCE, **evaluation: Any) -> Content:
    content = amount("tried") | {"trigger": trigger}
    return content | {"evaluation": content["evaluation"] | {"intervals": {"kind": "tumbling", "every": "8d"}} | evaluation}


def long_world(world_of: Callable[..., World], content: Content, days: int = DAYS) -> World:
    world = world_of(content, split=SPLIT)
    world.deliver(range(days), rows=ROWS)
    return world


@pytest.mark.parametrize("form", ["exact", pytest.param("compact", marks=pytest.mark.soak("distributed"))])
def test_one_model_over_a_long_stream_is_predicted_by_all_workers(world_of, workers, form: str) -> None:
    world = long_world(world_of, pipeline(predictions=form))
    pool = workers(2)
    alone, divided = both(world, "tried", pool)
    assert divided == alone
    assert pool.made == ["train_ahead", *["predict_part"] * 3]
    assert len(alone.predictions) == len(alone.outcome["models"]) == 1


@pytest.mark.soak("distributed")
@pytest.mark.parametrize(("n_workers", "whole", "parts"), [(1, 3, 0), (2, 2, 3), (3, 3, 0), (4, 0, 9)], ids=["1", "2", "3", "4"])
def test_as_many_models_as_workers_are_evaluated_at_a_time_and_the_last_ones_divided(
    world_of, workers, n_workers: int, whole: int, parts: int
) -> None:
    world = long_world(world_of, pipeline({"kind": "amount", "every": 30, "max_triggers": 3}))
    pool = workers(n_workers)
    alone, divided = both(world, "tried", pool)
    assert divided == alone
    assert (pool.made.count("compute_in_worker"), pool.made.count("predict_part")) == (whole, parts)


@pytest.mark.soak("distributed")
@pytest.mark.parametrize("evaluated", [{"kind": "training_sets"}, {"kind": "trigger_spans"}], ids=["training_set", "span"])
def test_samples_of_any_origin_are_divided(world_of, workers, evaluated: Content) -> None:
    world = long_world(world_of, pipeline(data=evaluated))
    pool = workers(3)
    alone, divided = both(world, "tried", pool)
    assert divided == alone
    assert "predict_part" in pool.made


@pytest.mark.soak("distributed")
@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(n_workers=st.integers(2, 6), failing=st.sets(st.integers(0, 30), max_size=3))
def test_parts_that_fail_are_predicted_by_the_process_itself(world_of, workers, n_workers: int, failing: set[int]) -> None:
    world = drawn_world(world_of)
    pool: InlinePool = workers(
        n_workers, after=lambda made: OSError(5, "Input/output error") if len(pool.made) in failing else made
    )
    alone, divided = both(world, "tried", pool)
    assert divided == alone


_WORLDS: dict[Any, World] = {}


def drawn_world(world_of: Callable[..., World]) -> World:
    """The world of all examples of a test."""
    if world_of not in _WORLDS:
        _WORLDS.clear()
        _WORLDS[world_of] = long_world(world_of, pipeline(predictions="exact"), 4 * READ_BLOCKS)
    return _WORLDS[world_of]


@pytest.mark.soak("distributed")
def test_stretches_between_samples_deleted_earlier_have_the_same_blocks(world_of, workers) -> None:
    world = long_world(world_of, pipeline())
    delete(world, [*(17 << 32 | position for position in range(ROWS)), 20 << 32, 33 << 32 | 2])
    alone, divided = both(world, "tried", workers(2))
    assert divided == alone


@pytest.mark.soak("distributed")
def test_samples_deleted_under_the_workers_are_predicted_by_none(world_of, workers, caplog: pytest.LogCaptureFixture) -> None:
    world = long_world(world_of, pipeline(predictions="exact"))
    dealt: list[StretchPart] = []

    def disturb(item: object) -> None:
        if isinstance(item, StretchPart):
            dealt.append(item)
            if len(dealt) == 2:
                # Long after the samples that the model was trained on.
                delete(world, [item.ordinals[-1] << 32 | position for position in range(ROWS)])

    pool = workers(2, disturb)
    with caplog.at_level(logging.WARNING):
        replayed(world, "tried", "workers", pool)
        scores = replayed(world, "tried", "workers").outcome["evaluations"]
    assert "samples were deleted since they were dealt" in caplog.text
    forget_evaluations(world)
    assert scores == replayed(world, "tried", "alone").outcome["evaluations"]


@pytest.mark.soak("distributed")
def test_models_of_a_live_run_are_dealt_and_divided_like_those_of_a_replay(world_of, workers) -> None:
    world = long_world(world_of, pipeline({"kind": "amount", "every": 30, "max_triggers": 3}))
    world.live_until_idle("tried")
    run = world.run("tried", "live")
    expected = scored(world, run.id)
    forget_evaluations(world)
    pool = workers(2)
    triggers, view = world.triggers(run.id, "trained"), world.platform.view(DATASET)
    contexts = [replace(context_of(world.platform, "tried", each.partition_key, view), pool=pool) for each in triggers]
    for context, evaluated in zip(contexts, dealt_evaluations(contexts, finished=False), strict=True):
        evaluation_stage(context, finished=False, evaluated=evaluated)
    assert scored(world, run.id) == expected
    assert pool.made == ["compute_in_worker"] * 2 + ["predict_part"] * 3


def scored(world: World, run_id: int) -> Any:
    with world.platform.transaction() as conn:
        files = [list_predictions(conn, trigger.id) for trigger in world.triggers(run_id)]
    found = [(file.first_key, file.last_key, file.checksum) for each in files for file in each]
    return found, world.outcome(world.reread(run_id))["evaluations"]


@given(reads=st.integers(2, 100_000), workers=st.integers(2, 64))
def test_no_part_of_a_longer_stretch_is_larger(reads: int, workers: int) -> None:
    number = count_parts(reads, workers)
    largest = max((part + 1) * reads // number - part * reads // number for part in range(number))
    assert 1 <= largest <= 64
    assert number == min(reads, 4 * workers) or largest > 32


@given(
    n_samples=st.integers(0, 5000),
    requested=st.none() | st.sets(st.integers(0, 4999)),
    deleted=st.none() | st.sets(st.integers(0, 4999)),
)
def test_blocks_are_counted_as_they_are_made(n_samples: int, requested: set[int] | None, deleted: set[int] | None) -> None:
    chosen = [
        None if positions is None else np.array(sorted(each for each in positions if each < n_samples), dtype=np.int64)
        for positions in (requested, deleted)
    ]
    assert count_blocks(n_samples, *chosen) == len(list(fixed_blocks(0, n_samples, *chosen)))
