"""Runs with holes: where they come from, who inherits them, and what is refused."""

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from modyn_dagster.catalog.removal.hole_sets import get_hole_set
from modyn_dagster.catalog.removal.packed_keys import unpack_keys
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.data.split import EVALUATE, TRAIN
from modyn_dagster.data.tasks import n_classes
from modyn_dagster.errors import ConfigError, RunError
from modyn_dagster.keys import ORIGIN, KeyRange, key_of
from modyn_dagster.pipeline.decide.live_run import reset_run
from modyn_dagster.pipeline.operate.deletion.document import DeletionDocument
from modyn_dagster.pipeline.operate.deletion.execute import begin_request, choose_ways, execute_request
from modyn_dagster.pipeline.replay.run import ReplayRequest, run_lock
from modyn_dagster.pipeline.replay.walk import replay as walk
from tests.pipeline.deleting import chained, delete, execute, plan, purge, shown
from tests.pipeline.late_labels import Label, add_labels, arrive_later
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, ROWS, amount

Worlds = Callable[..., World]

EVERY = 35
SPLIT = {"train": 0.8, "evaluate": 0.2}
GONE = [key_of(1, position) for position in range(0, ROWS, 3)]


def holes_of(world: World, run: RunRow) -> list[int]:
    with world.platform.transaction() as conn:
        return [] if run.hole_set_id is None else unpack_keys(get_hole_set(conn, run.hole_set_id).keys).tolist()


def hashes(world: World, run: RunRow) -> list[str]:
    with world.platform.transaction() as conn:
        return [model.hash for model in list_models(conn, run.id)]


def keys_left(world: World, days: int, side: int) -> list[int]:
    """Keys of the samples on a side of the split that are no holes, from the definition."""
    keys = [key_of(day, row) for day in range(days) for row in range(ROWS)]
    sides = world.platform.view(DATASET).sides(np.array(keys, np.uint64)).tolist()
    return [key for key, of in zip(keys, sides, strict=True) if of == side and key not in GONE]


@pytest.mark.soak("deletions")
def test_an_amount_trigger_counts_the_samples_that_are_left_and_intervals_do_too(world_of: Worlds) -> None:
    world = world_of(amount(every=EVERY), split=SPLIT)
    world.deliver(range(4))
    delete(world, GONE)
    world.replay("by_amount", as_if_deleted=True)
    world.replay("by_amount", name="counted")
    run, counted = world.run_named("by_amount", ""), world.run_named("by_amount", "counted")
    assert (holes_of(world, run), holes_of(world, counted)) == (GONE, [])
    left = keys_left(world, 4, TRAIN)
    assert [trigger.key for trigger in world.triggers(run.id)] == left[EVERY - 1 :: EVERY]
    assert [trigger.key for trigger in world.triggers(counted.id)] != left[EVERY - 1 :: EVERY]
    judged = keys_left(world, 4, EVALUATE)
    sizes = [sum(day // 2 == interval for day in (key >> 32 for key in judged)) for interval in (0, 1)]
    scored = {(cell[1], cell[4]) for cell in world.outcome(run)["evaluations"] if cell[3] == "accuracy"}
    assert [n for _, n in sorted(scored)] == sizes
    view = world.platform.view_of(run)
    assert view.keys_on(TRAIN, KeyRange(ORIGIN, view.last_key)).tolist() == left


def test_a_batch_of_holes_alone_has_no_time_no_class_and_no_sample(world_of: Worlds) -> None:
    world = world_of(amount(every=EVERY), split=SPLIT)
    world.deliver(range(3))
    delete(world, [key_of(2, row) for row in range(ROWS)])
    world.replay("by_amount", as_if_deleted=True)
    run = world.run("by_amount", "replay")
    view, earlier = world.platform.view_of(run), world.platform.view(DATASET).up_to(1)
    assert view.time_reached == earlier.time_reached
    assert (view.batches[2].n_train, view.batches[2].time_max, dict(view.batches[2].label_counts or {})) == (0, None, {})
    assert [trigger.key for trigger in world.triggers(run.id)] == keys_left_of(world, 2)[EVERY - 1 :: EVERY]


def keys_left_of(world: World, days: int) -> list[int]:
    keys = np.array([key_of(day, row) for day in range(days) for row in range(ROWS)], np.uint64)
    return [int(key) for key in keys[world.platform.view(DATASET).sides(keys) == TRAIN]]


def count_classes(world: World) -> None:
    """Leave the number of classes to the labels."""
    path = world.folder / "datasets" / f"{DATASET}.yaml"
    path.write_text(path.read_text().replace("  n_classes: 2\n", ""))
    world.reload()


@pytest.mark.soak("deletions")
def test_a_class_that_only_holes_have_is_no_class_of_the_models(world_of: Worlds) -> None:
    world = world_of(amount(every=EVERY))
    count_classes(world)
    world.deliver(range(1))
    text = (world.folder / "data" / "day_00.csv").read_text().splitlines()
    (world.folder / "data" / "day_01.csv").write_text(
        "\n".join([text[0], "2024-01-02T00:00:00Z,0,0,7", "2024-01-02T00:01:00Z,0,0,1", ""])
    )
    world.deliver([])
    assert n_classes(world.platform.view(DATASET)) == 8
    delete(world, [key_of(1, 0)])
    world.replay("by_amount", as_if_deleted=True)
    assert n_classes(world.platform.view_of(world.run("by_amount", "replay"))) == 2
    # Purged, its class is not known any more, and does not come back with further holes.
    purge(world, [key_of(1, 0)])
    execute(world, [key_of(1, 1)], mode="as_if_deleted")
    assert n_classes(world.platform.view_of(world.run("by_amount", "replay"))) == 2
    # Nor in another replay, which begins from nothing.
    delete(world, [key_of(0, 0)])
    world.replay("by_amount", name="later", as_if_deleted=True)
    assert n_classes(world.platform.view_of(world.run_named("by_amount", "later"))) == 2


@pytest.mark.soak("deletions")
def test_a_class_that_only_late_labels_of_holes_have_is_none_either(world_of: Worlds) -> None:
    world = world_of(amount(every=EVERY))
    count_classes(world)
    world.deliver(range(2))
    arrive_later(world)
    labels = [Label(key_of(1, 3), 5, 1), Label(key_of(1, 4), 3, 1)]
    add_labels(world, [Label(key_of(0, row), row % 2, 0) for row in range(ROWS)] + labels)
    delete(world, [key_of(1, 3)])
    world.replay("by_amount", as_if_deleted=True)
    run = world.run("by_amount", "replay")
    assert [n_classes(view) for view in (world.platform.view(DATASET), world.platform.view_of(run))] == [6, 4]
    # A purge of the holes, or of other samples, changes no run that began before it.
    purge(world, [key_of(1, 3), key_of(1, 4)])
    assert n_classes(world.platform.view_of(run)) == 4
    world.replay("by_amount", name="later", as_if_deleted=True)
    # The largest hole set knew that the hole alone had class 5; the other sample's class was gone before it became a hole.
    assert n_classes(world.platform.view_of(world.run_named("by_amount", "later"))) == 4
    delete(world, [key_of(0, 0)])
    world.replay("by_amount", name="last", as_if_deleted=True)
    assert n_classes(world.platform.view_of(world.run_named("by_amount", "last"))) == 4


@pytest.mark.soak("deletions")
def test_a_replay_begun_again_keeps_its_holes_and_one_without_is_not_continued_with_them(world_of: Worlds) -> None:
    world = world_of(amount(every=EVERY))
    world.deliver(range(2))
    delete(world, GONE[:2])
    world.replay("by_amount")
    with pytest.raises(RunError, match=r"as_if_deleted: replay run \d+ of by_amount began without it"):
        world.replay("by_amount", as_if_deleted=True)
    world.replay("by_amount", as_if_deleted=True, restart=True)
    run = world.run("by_amount", "replay")
    delete(world, GONE)
    world.replay("by_amount", as_if_deleted=True)
    assert world.run("by_amount", "replay").id == run.id
    world.replay("by_amount", restart=True)
    again = world.run("by_amount", "replay")
    assert again.id != run.id
    assert holes_of(world, again) == holes_of(world, run) == GONE[:2]


@pytest.mark.soak("deletions")
def test_the_runs_that_follow_a_live_run_have_its_holes(world_of: Worlds) -> None:
    world = world_of(amount(every=EVERY))
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    execute(world, GONE, mode="as_if_deleted")
    world.live_until_idle("by_amount")
    path = world.folder / "pipelines" / "by_amount.yaml"
    path.write_text(path.read_text().replace(f"every: {EVERY}", "every: 33"))
    world.reload()
    world.deliver([3])
    world.live_until_idle("by_amount")
    assert holes_of(world, world.run("by_amount", "live")) == GONE
    assert holes_of(world, reset_run(world.platform, "by_amount").new) == GONE


@pytest.mark.soak("deletions")
def test_what_a_live_run_made_before_the_samples_stays_and_the_rest_goes(world_of: Worlds) -> None:
    world = world_of(amount(every=EVERY))
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    old = world.run("by_amount", "live")
    before = hashes(world, old)
    planned = plan(world, GONE, mode="as_if_deleted")
    [action] = planned.actions
    assert (action.way, action.by, planned.decisions_depend) == ("decide_anew", "ledger", 0)
    assert action.seconds > 0
    document = execute(world, GONE, mode="as_if_deleted")
    n_clean = sum(trigger.point < GONE[0] for trigger in world.triggers(old.id))
    assert hashes(world, old) == before[:n_clean]
    assert [model.model for model in document.models] == before[n_clean:]
    assert set(before[n_clean:]).isdisjoint(world.platform.model_store.list())
    assert any(note.endswith("its sensor decides and trains from here on") for note in document.notes)


@pytest.mark.soak("deletions")
def test_a_deletion_that_only_moves_decisions_names_them_as_the_reason(world_of: Worlds) -> None:
    world = world_of(amount(every=EVERY), split=SPLIT)
    world.deliver(range(3))
    world.replay("by_amount")
    judged = int(world.platform.view(DATASET).keys_on(EVALUATE, KeyRange(GONE[0], GONE[-1]))[0])
    document = execute(world, [judged], mode="as_if_deleted")
    assert {tuple(model.because) for model in document.models} == {("decisions",)}
    # No decision moved: the models are the same, and stay in the store.
    assert all(model.replaced_by == model.model for model in document.models)
    run = world.run("by_amount", "replay")
    assert run.id == document.actions[0].anew
    assert set(hashes(world, run)) <= set(world.platform.model_store.list())


@pytest.mark.soak("deletions")
def test_runs_that_come_later_to_the_samples_get_them_as_holes_and_go_on(world_of: Worlds) -> None:
    world = world_of(amount(every=EVERY))
    world.deliver(range(1))
    world.replay("by_amount")
    run, models = world.run("by_amount", "replay"), hashes(world, world.run("by_amount", "replay"))
    world.deliver([1, 2])
    document = execute(world, GONE, mode="as_if_deleted")
    assert (document.actions, hashes(world, run)) == ([], models)
    world.replay("by_amount")
    world.replay("by_amount", name="oracle", as_if_deleted=True)
    assert world.reread(run.id).last_ordinal == 2
    assert world.outcome(world.reread(run.id)) == world.outcome(world.run_named("by_amount", "oracle"))


@pytest.mark.soak("deletions")
def test_a_second_request_adds_holes_and_one_for_the_same_samples_has_nothing_to_do(world_of: Worlds) -> None:
    world = world_of(amount(every=EVERY))
    world.deliver(range(3))
    world.replay("by_amount")
    execute(world, GONE[:4], mode="as_if_deleted")
    once = world.run("by_amount", "replay")
    assert execute(world, GONE[:4], mode="as_if_deleted").actions == []
    assert world.run("by_amount", "replay").id == once.id
    execute(world, GONE, mode="as_if_deleted")
    twice = world.run("by_amount", "replay")
    assert holes_of(world, twice) == GONE
    world.replay("by_amount", name="oracle", as_if_deleted=True)
    assert world.outcome(twice) == world.outcome(world.run_named("by_amount", "oracle"))


@pytest.mark.soak("deletions")
def test_a_run_whose_spec_is_gone_loses_what_it_made_since(world_of: Worlds) -> None:
    world = world_of(amount(every=EVERY))
    world.deliver(range(3))
    world.replay("by_amount")
    old = world.run("by_amount", "replay")
    path = world.folder / "pipelines" / "by_amount.yaml"
    path.write_text(path.read_text().replace(f"every: {EVERY}", "every: 33"))
    world.reload()
    with pytest.raises(ConfigError, match="the project no longer has its spec"):
        plan(world, GONE, mode="as_if_deleted", ways={"by_amount": "decide_anew"})
    document = execute(world, GONE, mode="as_if_deleted")
    assert [(action.way, action.anew) for action in document.actions] == [("retire", None)]
    assert all(trigger.point < GONE[0] for trigger in world.triggers(old.id, "trained"))


@pytest.mark.soak("deletions")
def test_a_stopped_run_is_begun_anew_stopped_and_a_person_may_retire_it_instead(world_of: Worlds) -> None:
    world = world_of(amount(every=EVERY))
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    dataset = world.platform.view(DATASET).row
    row = begin_request(world.platform, dataset, np.array(GONE, np.uint64), plan(world, GONE, mode="as_if_deleted"))
    with pytest.raises(ConfigError, match="only decide_anew, retire go with the mode"):
        choose_ways(world.platform, row.id, {"by_amount": "retrain"})
    choose_ways(world.platform, row.id, {"by_amount": "retire"})
    document = DeletionDocument.model_validate(execute_request(world.platform, row.id, shown).document)
    assert [(action.way, action.anew) for action in document.actions] == [("retire", None)]
    assert document.decisions_depend > 0
    assert world.reread(run.id).state == "stopped"
    execute(world, [key_of(0, 0)], mode="as_if_deleted")
    assert (world.run("by_amount", "live").state, world.reread(run.id).state) == ("stopped", "ended")


@pytest.mark.soak("deletions")
def test_a_replay_that_a_process_works_on_is_refused_by_name_and_done_later(world_of: Worlds) -> None:
    world = world_of(amount(every=EVERY))
    world.deliver(range(3))
    world.replay("by_amount")
    run = world.run("by_amount", "replay")
    dataset = world.platform.view(DATASET).row
    row = begin_request(world.platform, dataset, np.array(GONE, np.uint64), plan(world, GONE, mode="as_if_deleted"))
    with run_lock(world.platform.engine, run), pytest.raises(RunError, match=f"a process works on replay run {run.id}"):
        execute_request(world.platform, row.id, shown)
    document = DeletionDocument.model_validate(execute_request(world.platform, row.id, shown).document)
    assert document.actions[0].anew == world.run("by_amount", "replay").id


def test_files_of_predictions_without_holes_are_not_those_of_a_run_that_counts_the_samples(world_of: Worlds) -> None:
    world = world_of(amount(every=EVERY), split=SPLIT)
    world.deliver(range(3))
    # On the evaluation side: the runs have equal models.
    delete(world, world.platform.view(DATASET).keys_on(EVALUATE, KeyRange(GONE[0], GONE[-1])).tolist())
    world.replay("by_amount", name="without", as_if_deleted=True)
    world.replay("by_amount", name="counted")
    without, counted = (world.outcome(world.run_named("by_amount", name)) for name in ("without", "counted"))
    assert counted == without


@pytest.mark.long
@pytest.mark.soak("deletions")
def test_a_request_that_ended_amid_a_replay_goes_on_with_the_models_made_by_then(world_of: Worlds) -> None:
    world = world_of(chained(), split=SPLIT)
    world.deliver(range(4))
    world.replay("by_amount")
    run = world.run("by_amount", "replay")
    # On the evaluation side: the models come out as they were.
    keys = world.platform.view(DATASET).keys_on(EVALUATE, KeyRange(GONE[0], GONE[-1]))
    row = begin_request(world.platform, world.platform.view(DATASET).row, keys, plan(world, keys, mode="as_if_deleted"))
    # The run that will be begun.
    with run_lock(world.platform.engine, replace(run, id=run.id + 1)), pytest.raises(RunError, match="another process works on"):
        execute_request(world.platform, row.id, shown)
    request = ReplayRequest("by_amount", world.keys(), "killed")
    with closing(walked(world, request)) as events:
        while len(made := hashes(world, world.run("by_amount", "replay"))) != 3:
            next(events)
    execute_request(world.platform, row.id, shown)
    new = world.run("by_amount", "replay")
    assert (new.id, hashes(world, new)[:3]) == (run.id + 1, made)
    world.replay("by_amount", name="oracle", as_if_deleted=True)
    assert world.outcome(new) == world.outcome(world.run_named("by_amount", "oracle"))


def walked(world: World, request: ReplayRequest) -> Generator[object]:
    yield from walk(world.platform, request)
