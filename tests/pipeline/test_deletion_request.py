"""Deletion requests: models that saw deleted samples are made again or withdrawn, and no descendant of them remains."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pytest

from modyn_dagster.catalog.datasets import get_dataset
from modyn_dagster.catalog.removal.deletion_requests import list_requests
from modyn_dagster.catalog.results.models import ModelUse, list_models, model_uses
from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.catalog.results.training_sets import find_training_set
from modyn_dagster.catalog.timings import seconds_by_stage
from modyn_dagster.errors import ConfigError, RunError, TrackingError, UnknownKey
from modyn_dagster.pipeline.operate.deletion.document import DeletionDocument
from modyn_dagster.pipeline.operate.deletion.execute import begin_request, choose_ways, execute_request
from modyn_dagster.pipeline.operate.deletion.ways import clean_before
from modyn_dagster.pipeline.operate.sample_lineage import usages_of
from tests.pipeline.deleting import EVERY, chained, delete, execute, keys_of, plan, shown
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, amount
from tests.variants import represented

DAY = 1 << 32
SPLIT = {"train": 0.8, "evaluate": 0.2}


def hashes(world: World, run) -> list[str]:
    with world.platform.transaction() as conn:
        return [model.hash for model in list_models(conn, run.id)]


def stored(world: World) -> set[str]:
    return set(world.platform.model_store.list())


@dataclass(frozen=True)
class Case:
    """A pipeline, and whether a model depends on the one before."""

    content: dict
    chain: bool


MEMORY = {"strategy": {"kind": "clib", "n": 30}, "window": "all"}
RESERVOIR = {"strategy": {"kind": "uniform_reservoir", "n": 50}, "window": "all"}
CASES = {
    "alone": Case(amount(every=EVERY), False),
    "chained": Case(chained(), True),
    "reservoir": Case(
        amount(every=EVERY, selection={"strategy": {"kind": "uniform_reservoir", "n": 50}, "window": "all"}), False
    ),
    "memory": Case(amount(every=EVERY, selection=MEMORY), True),
}


@represented("case", CASES, "deletions", "chained")
def test_the_models_equal_those_of_a_replay_that_never_had_the_samples_in_its_sets_and_decisions_stay(
    world_of, case: Case
) -> None:
    world = world_of(case.content, split=SPLIT)
    name = case.content["name"]
    world.deliver(range(5))
    world.live_until_idle(name)
    run = world.run(name, "live")
    before, decisions = world.outcome(run), world.decisions(run)
    gone = [DAY + position for position in range(0, 40, 3)]
    document = execute(world, gone, ways={name: "retrain"})
    after = world.outcome(run)
    assert world.decisions(run) == decisions
    assert after["triggers"] == before["triggers"]
    assert not any(np.isin(keys_of(world, trigger), gone).any() for trigger in world.triggers(run.id, "trained"))
    # The samples are deleted now, so a replay of later selects and trains without them.
    world.replay(name)
    replayed = world.outcome(world.run(name, "replay"))
    assert [model[1:3] for model in after["models"]] == [model[1:3] for model in replayed["models"]]
    assert after["training_sets"] == replayed["training_sets"]
    old = {model.model for model in document.models if model.replaced_by != model.model}
    assert old
    assert old.isdisjoint(hashes(world, run))
    assert old.isdisjoint(stored(world))
    if case.chain:
        keys = [trigger.partition_key for trigger in world.triggers(run.id)]
        first = keys.index(document.models[0].trigger)
        assert [model.trigger for model in document.models] == keys[first:]


def test_only_the_model_that_saw_the_samples_is_made_again_where_none_descends_from_it(world_of) -> None:
    world = world_of(amount(every=EVERY), split=SPLIT)
    world.deliver(range(4))
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    before = hashes(world, run)
    last = len(before) - 1
    [key, *_] = keys_of(world, world.triggers(run.id)[last])
    document = execute(world, [int(key)])
    after = hashes(world, run)
    assert [a == b for a, b in zip(before, after, strict=True)] == [True] * last + [False]
    assert [(action.way, action.state, action.by) for action in document.actions] == [("retrain", "done", "ledger")]
    assert world.reread(run.id).previous_model == after[-1]
    [change] = document.models
    assert (change.model, change.replaced_by, change.n_samples, list(change.because)) == (
        before[3],
        after[3],
        1,
        ["training_set"],
    )
    assert change.live[0].until is None
    assert [(batch.ordinal, batch.n_samples) for batch in document.batches] == [(int(key) >> 32, 1)]
    assert document.notes == ["shown"]
    assert document.finished_at is not None


@pytest.mark.soak("deletions")
def test_the_ways_of_the_ledger_leave_what_stands_for_a_pipeline_in_service(world_of) -> None:
    world = world_of(chained(), split=SPLIT)
    world.deliver(range(4))
    world.live_until_idle("by_amount")
    world.replay("by_amount", name="old")
    last = [int(keys_of(world, world.triggers(world.run("by_amount", "live").id)[2])[0])]
    planned = plan(world, last)
    assert [(action.mode, action.way) for action in planned.actions] == [("live", "retrain"), ("replay", "roll_back")]
    retrain = planned.actions[0].costs[0]
    assert (retrain.n_models, retrain.seconds > 0) == (2, True)
    assert planned.decisions_depend > 0
    earliest = [int(keys_of(world, world.triggers(world.run("by_amount", "live").id)[0])[0])]
    first = plan(world, earliest)
    assert [(action.mode, action.way, action.ancestor) for action in first.actions] == [
        ("live", "retrain", None),
        ("replay", "retire", None),
    ]
    with pytest.raises(ConfigError, match="no model that has not seen them"):
        plan(
            world, [int(keys_of(world, world.triggers(world.run("by_amount", "live").id)[0])[0])], ways={"by_amount": "roll_back"}
        )
    with pytest.raises(ConfigError, match=r"has no model that saw the samples; these have: by_amount"):
        plan(world, last, ways={"other": "retire"})


@pytest.mark.soak("deletions")
def test_a_run_that_is_rolled_back_goes_on_from_its_clean_model(world_of) -> None:
    world = world_of(chained(), split=SPLIT)
    world.deliver(range(4))
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    before = hashes(world, run)
    key = int(keys_of(world, world.triggers(run.id)[2])[0])
    document = execute(world, [key], ways={"by_amount": "roll_back"})
    assert hashes(world, run) == before[:2]
    assert world.reread(run.id).previous_model == before[1]
    assert {model.replaced_by for model in document.models} == {None}
    assert [trigger.state for trigger in world.triggers(run.id)] == ["trained", "trained", "skipped", "skipped"]
    assert not {before[2], before[3]} & stored(world)
    for file in document.files:
        if file.kind in ("training_set", "predictions"):
            assert (file.after is None) == (not (world.platform.home / file.path).exists()), file
    world.deliver([4])
    world.live_until_idle("by_amount")
    with world.platform.transaction() as conn:
        models = list_models(conn, run.id)
    assert [model.previous_hash for model in models[2:]] == [before[1]]


def test_a_run_that_is_retired_stops_and_has_none_of_its_models(world_of) -> None:
    world = world_of(chained(), split=SPLIT)
    world.deliver(range(2))
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    execute(world, [int(keys_of(world, world.triggers(run.id)[0])[0])], ways={"by_amount": "retire"})
    assert (hashes(world, run), world.reread(run.id).state, world.reread(run.id).previous_model) == ([], "stopped", None)
    assert stored(world) == set()


def test_a_stored_request_takes_another_way_as_long_as_its_models_are_not_made(world_of) -> None:
    world = world_of(chained(), split=SPLIT)
    world.deliver(range(2))
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    planned = plan(world, [int(keys_of(world, world.triggers(run.id)[0])[0])])
    assert [action.way for action in planned.actions] == ["retrain"]
    with world.platform.transaction() as conn:
        dataset = get_dataset(conn, DATASET)
    keys = keys_of(world, world.triggers(run.id)[0])[:1]
    request = begin_request(world.platform, dataset, keys, planned).id
    with pytest.raises(ConfigError, match=r"--way: has no model that saw the samples of this request \(found 'other'\)"):
        choose_ways(world.platform, request, {"other": "retire"})
    with pytest.raises(ConfigError, match=r"the run has no model that has not seen them \(found 'by_amount=roll_back'\)"):
        choose_ways(world.platform, request, {"by_amount": "roll_back"})
    choose_ways(world.platform, request, {"by_amount": "retire"})
    execute_request(world.platform, request, shown)
    assert (hashes(world, run), world.reread(run.id).state) == ([], "stopped")
    with pytest.raises(RunError, match="no way to choose any more"):
        choose_ways(world.platform, request, {"by_amount": "retrain"})


def test_the_model_to_go_back_to_is_older_than_the_one_that_goes() -> None:
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    models = [
        ModelUse(n, "p", "live", run, ordinal, f"{run}.{ordinal}", moment, None)
        for n, (run, ordinal) in enumerate([(1, 1), (1, 2), (1, 3), (1, 4), (2, 1)])
    ]
    saw = {models[1].partition_key, models[2].partition_key}
    assert clean_before(models, saw, models[2].partition_key) == "1.1"
    assert clean_before(models, {*saw, models[0].partition_key}, models[2].partition_key) is None
    assert clean_before(models, {models[4].partition_key}, models[4].partition_key) is None


@pytest.mark.soak("deletions")
def test_predictions_of_deleted_samples_by_other_models_are_made_again_without_them(world_of) -> None:
    world = world_of(amount(every=EVERY), split=SPLIT)
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    held = set(np.concatenate([keys_of(world, trigger) for trigger in world.triggers(run.id)]).tolist())
    judged = next(DAY + position for position in range(40) if DAY + position not in held)

    def predicted() -> int:
        with world.platform.transaction() as conn:
            return sum(file.n_samples for trigger in world.triggers(run.id) for file in list_predictions(conn, trigger.id))

    before, models = predicted(), hashes(world, run)
    with world.platform.transaction() as conn:
        spent = seconds_by_stage(conn, run.id)["evaluate"]
    planned = plan(world, [judged])
    assert (planned.actions, planned.seconds) == ([], planned.predicting)
    assert planned.predicting == pytest.approx(spent)
    document = execute(world, [judged])
    assert hashes(world, run) == models
    assert document.models == []
    assert predicted() == before - len(models)
    assert all(file.before != file.after for file in document.files if file.kind == "predictions")


@pytest.mark.soak("deletions")
def test_a_successor_begins_with_the_new_model_of_the_run_before(world_of) -> None:
    world = world_of(chained(), split=SPLIT)
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    first = world.run("by_amount", "live")
    (world.folder / "pipelines" / "by_amount.yaml").write_text(
        (world.folder / "pipelines" / "by_amount.yaml").read_text().replace("every: 30", "every: 27")
    )
    world.reload()
    world.deliver([3, 4])
    world.live_until_idle("by_amount")
    second = world.run("by_amount", "live")
    assert second.id != first.id
    key = int(keys_of(world, world.triggers(first.id)[2])[0])
    document = execute(world, [key], ways={"by_amount": "retrain"})
    with world.platform.transaction() as conn:
        firsts, seconds = list_models(conn, first.id), list_models(conn, second.id)
        named = {use.hash for use in model_uses(conn)}
    assert seconds[0].previous_hash == firsts[-1].hash
    assert {model.model for model in document.models}.isdisjoint(named)


@pytest.mark.soak("deletions")
def test_samples_deleted_before_are_a_request_too_and_the_second_request_finds_nothing_to_do(world_of) -> None:
    world = world_of(chained(), split=SPLIT)
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    key = int(keys_of(world, world.triggers(run.id)[1])[0])
    delete(world, [key])
    assert len(execute(world, [key]).models) == 2
    models = hashes(world, run)
    again = execute(world, [key])
    assert (again.models, again.actions, hashes(world, run)) == ([], [], models)
    assert usages_of(world.platform, run.dataset_id, np.array([key], np.uint64)) == []


@pytest.mark.soak("deletions")
def test_a_way_that_a_run_of_after_the_plan_does_not_have_becomes_retire(world_of) -> None:
    world = world_of(chained(), split=SPLIT)
    world.deliver(range(4))
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    before = hashes(world, run)
    key = int(keys_of(world, world.triggers(run.id)[2])[0])
    dataset = world.platform.view(DATASET).row
    planned = plan(world, [key], ways={"by_amount": "roll_back"})
    request = begin_request(world.platform, dataset, np.array([key], np.uint64), planned)
    # All models of this replay have seen the sample.
    world.replay("by_amount", world.keys()[key >> 32 :], name="since then")
    replay = world.run_named("by_amount", "since then")
    assert key in keys_of(world, world.triggers(replay.id)[0])
    document = DeletionDocument.model_validate(execute_request(world.platform, request.id, shown).document)
    assert [(action.run_id, action.way, action.by) for action in document.actions] == [
        (run.id, "retire", "person"),
        (replay.id, "retire", "person"),
    ]
    assert any(note.endswith("the run has no model that has not seen them: retired instead") for note in document.notes)
    assert (hashes(world, run), hashes(world, replay)) == (before[:2], [])
    assert world.reread(run.id).state == "stopped"


def test_what_cannot_be_done_is_refused_by_name_before_anything_changes(world_of) -> None:
    world = world_of(amount(every=EVERY))
    world.deliver(range(1))
    with pytest.raises(UnknownKey, match="no sample with key 40"):
        plan(world, [40])
    with pytest.raises(RunError, match="holds no sample"):
        plan(world, [])
    dataset = world.platform.view(DATASET).row
    row = begin_request(world.platform, dataset, np.array([1], np.uint64), plan(world, [1]))
    with pytest.raises(RunError, match=rf"deletion request {row.id} .* is not finished; .*--request {row.id} --execute"):
        begin_request(world.platform, dataset, np.array([2], np.uint64), plan(world, [2]))
    assert [batch.n_deleted for batch in world.platform.view(DATASET).batches] == [0]


@pytest.mark.soak("deletions")
def test_a_model_trained_meanwhile_from_one_that_saw_the_samples_is_made_again_too(world_of, monkeypatch) -> None:
    world = world_of(chained(), split=SPLIT)
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    key = int(keys_of(world, world.triggers(run.id)[2])[0])
    dataset = world.platform.view(DATASET).row
    row = begin_request(world.platform, dataset, np.array([key], np.uint64), plan(world, [key]))
    world.deliver([3])
    world.live_until_idle("by_amount")
    document = DeletionDocument.model_validate(execute_request(world.platform, row.id, shown).document)
    assert [len(action.triggers) for action in document.actions] == [2]
    with world.platform.transaction() as conn:
        models = list_models(conn, run.id)
        assert find_training_set(conn, models[-1].trigger_id) is not None
    assert {model.model for model in document.models}.isdisjoint({model.previous_hash for model in models})
    world.replay("by_amount")
    assert [model.hash for model in models] == hashes(world, world.run("by_amount", "replay"))


@pytest.mark.soak("deletions")
def test_an_mlflow_that_is_away_leaves_only_the_showing_to_be_done(world_of) -> None:
    world = world_of(chained(), split=SPLIT)
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    key = int(keys_of(world, world.triggers(run.id)[0])[0])

    def away(document: DeletionDocument) -> Iterator[str]:
        if document.models:
            raise TrackingError("MLflow", "does not answer")
        yield ""

    with pytest.raises(TrackingError):
        execute(world, [key], show=away)
    models = hashes(world, run)
    with world.platform.transaction() as conn:
        [row] = list_requests(conn, run.dataset_id)
    assert row.state == "showing"
    assert execute_request(world.platform, row.id, shown).state == "finished"
    assert execute_request(world.platform, row.id, away).state == "finished"
    assert hashes(world, run) == models
