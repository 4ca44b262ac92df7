"""Laws of simulated delays, for every triggering policy and every selection strategy that takes labels which arrive later.

A pipeline with a delay over a labelled history is the same pipeline over a stream in which each label arrives with the batch at
which stream time passes it. Without a delay in it, it is the pipeline without one.
"""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.pipeline.replay.run import ReplayRequest
from modyn_dagster.pipeline.replay.walk import replay
from modyn_dagster.spec.learning.label_delay import LabelDelay
from tests.pipeline.inline_pool import InlinePool
from tests.pipeline.labels.delays import DELAYS, arriving
from tests.pipeline.labels.laws import DAYS, EVERYTHING, SPLIT, every_variant, killed_replay, known_by, replayed, with_samples
from tests.pipeline.labels.pipelines import ONLY_LATE, pipeline_of
from tests.pipeline.late_labels import arrive_later, replace_labels
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, write_pipeline

Worlds = Callable[..., World]

DELAY: TypeAdapter[LabelDelay] = TypeAdapter(LabelDelay)
#: Delays that leave some labels out, for laws that are not about single kinds.
SOME = {"performance": "by class", "gdumb": "lognormal"}


def delayed(variant: str, delay: str, **fields: Any) -> dict[str, Any]:
    return pipeline_of(variant, **fields) | {"label_delay": DELAYS[delay]}


@pytest.fixture
def labelled(world_of: Worlds) -> Callable[..., World]:
    """Makes a world with pipelines over a labelled history."""

    def make(*pipelines: dict[str, Any]) -> World:
        world = world_of(*pipelines, split=SPLIT, attributes=["label"])
        world.deliver(range(DAYS))
        return world

    return make


def facts(world: World, run: RunRow) -> dict[str, Any]:
    """Facts of a run, final scores included."""
    with world.platform.transaction() as conn:
        cells = list_evaluations(conn, run.id, subsets=True)
    final = [(c.ordinal, c.subset, c.interval_start, c.metric, c.final_value, c.final_undefined, c.final_labelled) for c in cells]
    return known_by(world, run, EVERYTHING) | {"final": final}


def is_a_stream_with_late_labels(world: World, variant: str, delay: str) -> None:
    before = facts(world, replayed(world, "late", "delayed"))
    labels = arriving(world.platform.view(DATASET), DELAY.validate_python(DELAYS[delay]))
    write_pipeline(world.folder, pipeline_of(variant))
    arrive_later(world)
    replace_labels(world, labels)
    assert facts(world, replayed(world, "late", "late")) == before
    assert before["triggers"]


@pytest.mark.long
@every_variant()
def test_a_delay_is_a_stream_whose_labels_arrive_when_stream_time_passes_them(
    labelled: Callable[..., World], variant: str
) -> None:
    delay = SOME.get(variant, "exponential")
    is_a_stream_with_late_labels(labelled(delayed(variant, delay)), variant, delay)


@pytest.mark.long
@pytest.mark.soak("labels")
@pytest.mark.parametrize("delay", sorted(DELAYS))
def test_every_kind_of_delay_is_such_a_stream(labelled: Callable[..., World], delay: str) -> None:
    is_a_stream_with_late_labels(labelled(delayed("performance", delay)), "performance", delay)


@pytest.mark.long
@every_variant("gdumb", without=ONLY_LATE)
def test_a_delay_of_nothing_changes_nothing(labelled: Callable[..., World], variant: str) -> None:
    world = labelled(pipeline_of(variant))
    before = with_samples(world, "without")
    write_pipeline(world.folder, delayed(variant, "none"))
    world.reload()
    assert with_samples(world, "nothing") == before


@pytest.mark.long
@pytest.mark.soak("labels")
@pytest.mark.parametrize("variant", ["performance", "drift", "gdumb", "mir", "similar_to_unlabelled"])
def test_live_workers_and_kills_change_nothing(
    labelled: Callable[..., World], variant: str, workers: Callable[..., InlinePool]
) -> None:
    world = labelled(delayed(variant, "by class"))
    once = known_by(world, replayed(world, "late", "once"), EVERYTHING)
    assert known_by(world, killed_replay(world, "late", "killed", 5), EVERYTHING) == once
    pool = workers()
    list(replay(world.platform, ReplayRequest("late", world.keys(), "dagster-run", name="pooled"), pool=pool))
    assert pool.made
    assert known_by(world, world.run_named("late", "pooled"), EVERYTHING) == once
    world.live_until_idle("late")
    live = known_by(world, world.run("late", "live"), EVERYTHING)
    # The replay has finished, and scored its last interval too.
    assert set(live.pop("scores")) <= set(once.pop("scores"))
    assert live == once


@pytest.mark.long
@pytest.mark.soak("labels")
@pytest.mark.parametrize("variant", ["balanced", "gdumb", "similar_to_unlabelled", "all"])
def test_both_backends_choose_the_same(labelled: Callable[..., World], variant: str) -> None:
    world = labelled(*(delayed(variant, "by class", name=backend, backend=backend) for backend in ("arrow", "postgres")))
    arrow, postgres = (known_by(world, replayed(world, name, "delayed"), EVERYTHING) for name in ("arrow", "postgres"))
    assert postgres == arrow
    assert arrow["training_sets"]
