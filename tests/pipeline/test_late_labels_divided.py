"""Labels that arrive later, with workers and with ranks: every model of an evaluation sees the same ones."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from modyn_dagster.catalog.results.evaluations import EvaluationRow, list_evaluations
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.stages.evaluation.dealt import ModelEvaluation, dealt_evaluations, with_equal_labels
from modyn_dagster.pipeline.stages.trigger_stages import evaluation_stage
from tests.pipeline.late_labels import Label, add_labels, arrive_later, at_once
from tests.pipeline.same_end import both, forget_evaluations
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, Content, amount, triggered

Worlds = Callable[..., World]

#: Arrivals after those of all batches.
LATE, LATER = 100, 200


def late_world(world_of: Worlds, *pipelines: Content) -> tuple[World, list[Label]]:
    """A project whose odd samples get their labels two batches late; every sixth sample waits for the test to label it."""
    world = world_of(*pipelines)
    world.deliver(range(6))
    labels = [replace(each, arrival=each.arrival + 2 * (each.key % 2)) for each in at_once(world)]
    arrive_later(world)
    add_labels(world, [each for each in labels if each.key % 6])
    return world, [each for each in labels if each.key % 6 == 0]


def pipeline(name: str = "tried", **parts: Content) -> Content:
    content = amount(name, every=40)
    return content | {part: content.get(part, {}) | changed for part, changed in parts.items()}


def final_cells(world: World, run_id: int) -> list[EvaluationRow]:
    with world.platform.transaction() as conn:
        return list_evaluations(conn, run_id)


@pytest.mark.parametrize("n_workers", [pytest.param(1, marks=pytest.mark.soak("distributed")), 2])
def test_labels_that_arrive_during_an_evaluation_count_for_all_of_its_models_or_for_none(
    world_of: Worlds, workers, n_workers: int
) -> None:
    world, waiting = late_world(world_of, pipeline(evaluation={"matrix": "full"}))
    add_labels(world, [replace(each, arrival=LATE) for each in waiting[::2]])
    world.live_until_idle("tried")
    run = world.run("tried", "live")
    expected = scores(final_cells(world, run.id))
    forget_evaluations(world)
    seen: list[object] = []

    def disturb(item: object) -> None:
        seen.append(item)
        if len(seen) == 1:
            add_labels(world, [replace(each, arrival=LATER) for each in waiting[1::2]])

    pool = workers(n_workers, disturb)
    view = world.platform.view(DATASET)
    triggers = world.triggers(run.id, "trained")
    found = [context_of(world.platform, "tried", trigger.partition_key, view) for trigger in triggers]
    contexts = with_equal_labels([replace(context, pool=pool) for context in found])
    for context, evaluated in zip(contexts, dealt_evaluations(contexts, finished=False), strict=True):
        evaluation_stage(context, finished=False, evaluated=evaluated)
    assert len(seen) == len(triggers) > 2
    assert all(isinstance(item, ModelEvaluation) for item in seen)
    cells = final_cells(world, run.id)
    assert {cell.final_arrival for cell in cells} == {LATE}
    assert scores(cells) == expected
    # The next evaluation sees the others, for every model.
    world.reload()
    world.live_until_idle("tried")
    for trigger in triggers:
        context = context_of(world.platform, "tried", trigger.partition_key, world.platform.view(DATASET))
        evaluation_stage(context, finished=False)
    assert {cell.final_arrival for cell in final_cells(world, run.id)} == {LATER}


def scores(cells: list[EvaluationRow]) -> list[tuple[Any, ...]]:
    return sorted((c.ordinal, str(c.interval_start), c.metric, c.value, c.final_value, c.final_labelled) for c in cells)


@pytest.mark.process
@pytest.mark.soak("distributed")
def test_late_labels_give_two_ranks_the_training_sets_of_one_and_the_same_bits_in_every_run(world_of: Worlds) -> None:
    training = {"epochs": 2, "batch_size": 10}
    names = {1: "alone", 2: "shared"}
    contents = [
        pipeline(name, training=training | {"ranks": ranks}, selection={"window": "all"}) for ranks, name in names.items()
    ]
    world, _ = late_world(world_of, *contents)
    ends = []
    for ranks, name in names.items():
        outcomes = []
        for run in ("first", "second"):
            # Otherwise the second run would take the scores of the first.
            forget_evaluations(world)
            world.replay(name, name=run)
            outcomes.append(world.outcome(world.run_named(name, run)))
        first, second = outcomes
        assert first == second
        with world.platform.transaction() as conn:
            models = list_models(conn, world.run_named(name, "first").id)
        assert [model.training["surroundings"].get("ranks", 1) for model in models] == [ranks] * len(models)
        ends.append((first["triggers"], first["training_sets"]))
    assert ends[0] == ends[1]
    assert len(ends[0][1]) > 2


DECAY: Content = {"keep": 0.5, "after": "1d"}
COST: Content = {
    "kind": "cost",
    "every": 9,
    "seconds": {"fixed": 1},
    "signal": "misclassifications",
    "regret_per_training_second": 9,
}
READ_ONCE: dict[str, tuple[Content, str]] = {
    "trainings ahead on a sample": (pipeline(selection={"strategy": {"kind": "rtbs", "n": 50, "decay": DECAY}}), "train_ahead"),
    "misclassifications": (triggered("tried", COST | {"seconds": {"fixed": 1}}), "measure_in_worker"),
}


@pytest.mark.soak("distributed")
@pytest.mark.parametrize("name", READ_ONCE)
def test_workers_take_and_count_each_late_label_as_the_replay_does(world_of: Worlds, workers, name: str) -> None:
    content, function = READ_ONCE[name]
    world, _ = late_world(world_of, content)
    pool = workers(3)
    alone, ahead = both(world, "tried", pool)
    assert ahead == alone
    assert len(alone.outcome["models"]) > 1
    assert pool.made.count(function) > 1
