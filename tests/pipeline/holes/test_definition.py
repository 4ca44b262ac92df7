"""Holes against their definition: a stream with holes decides, selects and scores as one that never had the samples."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.training_sets import find_training_set
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set
from tests.pipeline.deleting import delete
from tests.pipeline.holes.streams import LEFT, Renumbering, decided, deliver_left, drawn_holes, holes_at_ends
from tests.pipeline.labels.laws import SPLIT
from tests.pipeline.labels.pipelines import ONLY_LATE, STRATEGIES, TRIGGERS, pipeline_of
from tests.pipeline.world import World
from tests.variants import represented

Worlds = Callable[..., World]

DAYS = 5
#: Strategies whose choice depends on the keys of the samples, or on their places in their batches.
BY_KEY = (
    *("weighted", "freshness", "balanced", "balanced over triggers", "uniform", "uniform_without_replacement"),
    *("custom", "sql"),
)
#: Triggers that ask for a share of calibration samples, which the split takes by their keys.
CALIBRATED = ("performance avoidable", "performance estimated")


def selected(world: World, run: RunRow) -> list[list[int]]:
    """Keys of the training sets of a run, in order."""
    sets = []
    for trigger in world.triggers(run.id):
        with world.platform.transaction() as conn:
            row = find_training_set(conn, trigger.id)
        if row is not None:
            context = context_of(world.platform, run.pipeline, trigger.partition_key)
            sets.append(sorted(open_training_set(context, row).keys().tolist()))
    return sets


def scores(world: World, run: RunRow) -> list[tuple[Any, ...]]:
    with world.platform.transaction() as conn:
        cells = list_evaluations(conn, run.id, subsets=True)
    return [(c.ordinal, c.interval_start, c.interval_end, c.metric, c.n_samples, c.n_deleted, _rounded(c.value)) for c in cells]


def _rounded(value: float | None) -> float | None:
    """A score without the bits that depend on the places of samples in their blocks."""
    return None if value is None else round(value, 9)


def with_holes(world: World, pipeline: str, name: str = "") -> RunRow:
    world.replay(pipeline, name=name, as_if_deleted=True)
    return world.run_named(pipeline, name)


def every_variant(*shown: str, without: Sequence[str] = ()) -> pytest.MarkDecorator:
    """All policies and strategies but some: a few in `make test`, the others in the soak suite."""
    variants = [variant for variant in (*TRIGGERS, *STRATEGIES) if variant not in (*without, *ONLY_LATE)]
    return represented("variant", variants, "deletions", *shown)


@pytest.mark.long
@every_variant("rtbs", without=(*BY_KEY, *CALIBRATED))
def test_a_stream_with_holes_is_the_stream_of_the_other_samples(world_of: Worlds, variant: str) -> None:
    content = pipeline_of(variant)
    content["evaluation"]["metrics"] = ["accuracy", "log_loss"]
    world = world_of(content)
    world.deliver(range(DAYS))
    gone = drawn_holes(3, DAYS)
    deliver_left(world, DAYS, set(gone), content)
    delete(world, gone)
    holed = with_holes(world, "late")
    world.replay(LEFT, [batch.partition_key for batch in world.platform.view(LEFT).batches])
    left, number = world.run(LEFT, "replay"), Renumbering(set(gone))
    assert decided(world, holed, number) == decided(world, left)
    assert [sorted(map(number, keys)) for keys in selected(world, holed)] == selected(world, left)
    assert scores(world, holed) == scores(world, left)
    assert selected(world, left)


@pytest.mark.long
@every_variant("uniform")
def test_a_stream_whose_batches_end_with_holes_is_the_stream_of_shorter_batches(world_of: Worlds, variant: str) -> None:
    content = pipeline_of(variant)
    world = world_of(content, split=SPLIT)
    world.deliver(range(DAYS))
    gone = holes_at_ends(4, DAYS)
    deliver_left(world, DAYS, set(gone), content)
    delete(world, gone)
    holed = with_holes(world, "late")
    world.replay(LEFT, [batch.partition_key for batch in world.platform.view(LEFT).batches])
    left = world.run(LEFT, "replay")
    # Not the places of samples in blocks, of which a shorter batch has fewer: they are in no bit of a score.
    assert world.decisions(holed) == world.decisions(left)
    assert selected(world, holed) == selected(world, left)
    assert scores(world, holed) == scores(world, left)
    assert selected(world, left)
