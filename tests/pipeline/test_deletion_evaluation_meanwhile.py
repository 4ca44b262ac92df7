"""Deletion requests and evaluations under way: what is recorded afterwards holds no deleted sample and no withdrawn model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.models import find_model
from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.errors import StalePredictions
from modyn_dagster.evaluation import read_predictions
from modyn_dagster.keys import KeyArray
from modyn_dagster.pipeline.context import TriggerContext, context_of
from modyn_dagster.pipeline.models import predictor_id
from modyn_dagster.pipeline.stages.evaluation.damaged_predictions import read_recorded
from modyn_dagster.pipeline.stages.evaluation.stage import Evaluated, compute_evaluation, evaluate_model
from modyn_dagster.pipeline.stages.evaluation.training_data import evaluation_set
from tests.pipeline.deleting import EVERY, chained, delete, execute, keys_of
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, amount

DAY = 1 << 32
SPLIT = {"train": 0.8, "evaluate": 0.2}
EXACT = {
    "intervals": {"kind": "tumbling", "every": "2d", "start": "2024-01-01"},
    "metrics": ["accuracy"],
    "matrix": "full",
    "predictions": "exact",
}


def judged_key(world: World) -> int:
    """Key on the evaluation side of the newest day."""
    batch = world.platform.view(DATASET).batches[-1]
    return (batch.ordinal << 32) | int(world.platform.view(DATASET).evaluation_positions(batch)[2])


def under_way(world: World) -> tuple[TriggerContext, Evaluated]:
    """Evaluation of the first model that has predicted the newest day, and recorded nothing of that."""
    run = world.run("by_amount", "live")
    world.deliver([3])
    context = context_of(world.platform, "by_amount", world.triggers(run.id, "trained")[0].partition_key)
    context = replace(context, view=world.platform.view(DATASET))
    evaluated = Evaluated()
    compute_evaluation(context, evaluated, finished=False)
    assert len(evaluated.files) == 1
    return context, evaluated


def predicted(world: World, context: TriggerContext) -> KeyArray:
    """Keys in the files of a trigger's predictions that the catalog names, and that lie on the disk; these are the same."""
    with world.platform.transaction() as conn:
        rows = list_predictions(conn, context.trigger.id)
    home = world.platform.home
    found = [read_predictions(home / row.path, row.checksum).keys for row in rows]
    folder = Path(home / rows[0].path).parent
    assert {path.name for path in folder.iterdir()} == {Path(row.path).name for row in rows}
    return np.concatenate(found)


@pytest.mark.soak("deletions")
def test_predictions_of_samples_that_a_request_deleted_meanwhile_are_made_again_without_them(world_of) -> None:
    world = world_of(amount(every=EVERY, evaluation=EXACT), split=SPLIT)
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    context, evaluated = under_way(world)
    key = judged_key(world)
    execute(world, [key])
    evaluate_model(context, finished=False, evaluated=evaluated)
    keys = predicted(world, context)
    assert key not in keys
    assert keys.max() >= 3 * DAY


def test_deletions_on_the_training_side_leave_predictions_as_they_are(world_of) -> None:
    world = world_of(amount(every=EVERY, evaluation=EXACT), split=SPLIT)
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    context, evaluated = under_way(world)
    judged = set(world.platform.view(DATASET).evaluation_positions(world.platform.view(DATASET).batches[-1]).tolist())
    delete(world, [3 * DAY + next(position for position in range(20) if position not in judged)])
    evaluate_model(context, finished=False, evaluated=evaluated)
    with world.platform.transaction() as conn:
        rows = {row.path for row in list_predictions(conn, context.trigger.id)}
    assert evaluated.files[0]["path"] in rows


@pytest.mark.soak("deletions")
@pytest.mark.parametrize("way", ["retrain", "retire"])
def test_results_of_a_model_that_goes_meanwhile_are_not_recorded(world_of, way) -> None:
    world = world_of(chained(evaluation=EXACT), split=SPLIT)
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    context, evaluated = under_way(world)
    old = context.model
    assert old is not None
    execute(world, [int(keys_of(world, context.trigger)[0])], ways={"by_amount": way})
    with world.platform.transaction() as conn:
        model = find_model(conn, context.trigger.id)
        before = list_evaluations(conn, context.run.id, context.trigger.id, subsets=True)
    _, is_new = evaluate_model(context, finished=False, evaluated=evaluated)
    assert not is_new
    with world.platform.transaction() as conn:
        rows = list_predictions(conn, context.trigger.id)
        assert list_evaluations(conn, context.run.id, context.trigger.id, subsets=True) == before
    assert (model is None) == (way == "retire") == (rows == [])
    if model is not None:
        assert {row.model_hash for row in rows} == {predictor_id(model.hash, context.spec.training)}
    assert not (world.platform.home / evaluated.files[0]["path"]).exists()


@pytest.mark.soak("deletions")
def test_a_damaged_file_that_a_request_made_again_meanwhile_is_not_put_in_its_place(world_of) -> None:
    world = world_of(amount(every=EVERY, evaluation=EXACT), split=SPLIT)
    world.deliver(range(4))
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    context = context_of(world.platform, "by_amount", world.triggers(run.id, "trained")[0].partition_key)
    context = replace(context, view=world.platform.view(DATASET))
    model = context.model
    assert model is not None
    with world.platform.transaction() as conn:
        row = list_predictions(conn, context.trigger.id)[-1]
    key = judged_key(world)

    def strike(done: int, total: int) -> None:
        raise AssertionError(f"{done} of {total} are predicted, and none is missing")

    # The evaluation has read its rows; the request comes before it has put the file in place.
    path = world.platform.home / row.path
    path.write_bytes(path.read_bytes()[:-8])
    execute(world, [key])
    with pytest.raises(StalePredictions):
        read_recorded(context, model, evaluation_set(context), row)
    evaluate_model(context, finished=False, progress=strike)
    assert key not in predicted(world, context)


@pytest.mark.soak("deletions")
def test_what_an_equal_run_takes_over_while_a_request_makes_it_again_is_made_again_too(world_of) -> None:
    world = world_of(amount(every=EVERY, evaluation=EXACT), amount("same", every=EVERY, evaluation=EXACT), split=SPLIT)
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    key = judged_key(world)
    delete(world, [key])
    while (trigger := world.tick("same").train) is not None:
        world.train("same", trigger)
    contexts = [
        context_of(world.platform, "same", each.partition_key, world.platform.view(DATASET))
        for each in world.triggers(world.run("same", "live").id, "trained")[:2]
    ]
    linked = [Evaluated(), Evaluated()]
    for context, evaluated in zip(contexts, linked, strict=True):
        compute_evaluation(context, evaluated, finished=False)
    # The first is recorded before the request, the second afterwards.
    evaluate_model(contexts[0], finished=False, evaluated=linked[0])
    assert key in predicted(world, contexts[0])
    execute(world, [key])
    evaluate_model(contexts[1], finished=False, evaluated=linked[1])
    assert [key in predicted(world, context) for context in contexts] == [False, False]


@pytest.mark.soak("deletions")
def test_predictions_that_were_made_since_the_deletion_are_not_made_again(world_of) -> None:
    world = world_of(amount(every=EVERY, evaluation=EXACT), split=SPLIT)
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    run, key = world.run("by_amount", "live"), judged_key(world)
    execute(world, [key])
    with world.platform.transaction() as conn:
        before = [row.id for trigger in world.triggers(run.id) for row in list_predictions(conn, trigger.id)]
    document = execute(world, [key])
    with world.platform.transaction() as conn:
        assert [row.id for trigger in world.triggers(run.id) for row in list_predictions(conn, trigger.id)] == before
    assert all(file.before == file.after for file in document.files if file.kind == "predictions")
