"""Labels that arrive after their samples: read as of a position, and nothing later changes what was known."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastpath.format.labels.label_file import LabelRows
from modyn_dagster.catalog.labels.label_batches import label_batch
from modyn_dagster.catalog.labels.label_files import record_label_file
from modyn_dagster.catalog.registration.batches import Announcement, register_labels
from modyn_dagster.catalog.results.evaluations import EvaluationRow, list_evaluations
from modyn_dagster.catalog.results.training_sets import find_training_set
from modyn_dagster.data.label_files import write_label_file
from modyn_dagster.data.split import TRAIN
from modyn_dagster.data.view import DatasetView
from modyn_dagster.data.window_columns import WindowColumns
from modyn_dagster.keys import KeyRange, key_of, ordinal_of
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.operate.sample_lineage import usages_of
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set, select_training_set
from tests.examples import examples
from tests.pipeline.deleting import keys_of
from tests.pipeline.late_labels import Label, add_labels, arrive_later, at_once, known_by_brute_force, replace_labels
from tests.pipeline.measuring import drift, performance
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, amount

Worlds = Callable[..., World]

BALANCED = {"strategy": {"kind": "balanced"}, "limit": 40, "window": "all"}


def cells_of(world: World, mode: str = "replay") -> list[EvaluationRow]:
    run = world.run("by_amount", mode)
    with world.platform.transaction() as conn:
        return list_evaluations(conn, run.id)


def replayed(world: World, name: str, pipeline: str = "by_amount") -> dict:
    world.replay(pipeline, name=name)
    return world.outcome(world.run_named(pipeline, name))


def delayed(labels: list[Label], batches: int) -> list[Label]:
    """Every second label of each batch some batches late, and every seventh one never."""
    late = [replace(each, arrival=each.arrival + batches * (each.key % 2)) for each in labels]
    return [each for each in late if each.key % 7]


@pytest.mark.parametrize("backend", ["arrow", "postgres"])
def test_equal_labels_at_once_give_the_training_sets_models_and_scores_of_labels_with_the_samples(
    world_of: Worlds, backend: str
) -> None:
    world = world_of(amount(selection=BALANCED | {"backend": backend}))
    world.deliver(range(6))
    before = replayed(world, "with samples")
    labels = at_once(world)
    arrive_later(world)
    add_labels(world, labels)
    assert replayed(world, "late") == before
    for cell in cells_of(world):
        assert cell.value == cell.final_value
        assert cell.n_labelled == cell.final_labelled == cell.n_samples


@pytest.mark.parametrize("backend", ["arrow", "postgres"])
def test_a_training_set_has_the_samples_whose_labels_are_known_at_its_trigger_and_counts_the_others(
    world_of: Worlds, backend: str
) -> None:
    world = world_of(amount(selection={"window": "all", "backend": backend}))
    world.deliver(range(6))
    labels = delayed(at_once(world), 2)
    arrive_later(world)
    add_labels(world, labels)
    world.replay("by_amount")
    triggers = world.triggers(world.run("by_amount", "replay").id, "trained")
    assert len(triggers) == 2
    for trigger in triggers:
        context = context_of(world.platform, "by_amount", trigger.partition_key)
        row = context.training_set
        assert row is not None
        keys = np.concatenate([part.keys for part in open_training_set(context, row).partitions()])
        known = known_by_brute_force(labels, ordinal_of(trigger.point))
        assert keys.tolist() == sorted(key for key in known if key <= trigger.key)
        in_window = context.view.count(KeyRange(row.after, row.until), TRAIN)
        assert row.details["n_unlabelled"] == in_window - len(keys) > 0


MEMORIES = {
    "gdumb": {"kind": "gdumb", "n": 30},
    "clib": {"kind": "clib", "n": 30},
    "gss": {"kind": "gss", "n": 30},
    "mir": {"kind": "mir", "n": 30, "k": 20},
}


@pytest.mark.parametrize("memory", MEMORIES)
def test_memories_of_equal_labels_at_once_are_those_of_labels_with_the_samples(world_of: Worlds, memory: str) -> None:
    world = world_of(amount(selection={"strategy": MEMORIES[memory]}))
    world.deliver(range(6))
    before = replayed(world, "with samples")
    labels = at_once(world)
    arrive_later(world)
    add_labels(world, labels)
    assert replayed(world, "late") == before


def test_a_memory_takes_each_sample_at_the_first_trigger_that_knows_its_label(world_of: Worlds) -> None:
    world = world_of(amount(selection={"strategy": {"kind": "gdumb", "n": 1000}}))
    world.deliver(range(6))
    labels = delayed(at_once(world), 2)
    arrive_later(world)
    add_labels(world, labels)
    world.replay("by_amount")
    triggers = world.triggers(world.run("by_amount", "replay").id, "trained")
    for trigger in triggers:
        context = context_of(world.platform, "by_amount", trigger.partition_key)
        assert context.training_set is not None
        keys = np.concatenate([part.keys for part in open_training_set(context, context.training_set).partitions()])
        known = known_by_brute_force(labels, ordinal_of(trigger.point))
        assert keys.tolist() == sorted(key for key in known if key <= trigger.key)
        # Computed again from the beginning, with later labels in the catalog: the same, or an error.
        for path in (world.platform.home / "training_sets").rglob("*.state.json"):
            path.unlink()
        select_training_set(context)
    assert len(triggers) > 1


def test_a_memory_that_was_reset_takes_no_earlier_sample_whose_label_arrives_after_the_reset(world_of: Worlds) -> None:
    memory = {"kind": "gdumb", "n": 1000, "reset": "after_trigger"}
    world = world_of(amount(every=60, selection={"strategy": memory}))
    world.deliver(range(6))
    labels = delayed(at_once(world), 2)
    arrive_later(world)
    add_labels(world, labels)
    world.replay("by_amount")
    begin, late = -1, []
    for trigger in world.triggers(world.run("by_amount", "replay").id, "trained"):
        known = known_by_brute_force(labels, ordinal_of(trigger.point))
        row = context_of(world.platform, "by_amount", trigger.partition_key).training_set
        assert row is not None
        assert keys_of(world, trigger).tolist() == sorted(key for key in known if begin < key <= trigger.key)
        assert (row.after, row.until) == (begin, trigger.key)
        late += [key for key in known if key <= begin and key not in late]
        begin = trigger.key
    assert late
    # Lineage looks for samples in the sets whose window reaches them.
    view, held = world.platform.view(DATASET), dict[str, int]()
    for trigger in world.triggers(world.run("by_amount", "replay").id, "trained"):
        held |= {trigger.partition_key: len(keys_of(world, trigger))}
    uses = usages_of(world.platform, view.row.id, view.keys_on(TRAIN, KeyRange(-1, view.last_key)))
    assert {use.used_by.partition_key: use.n_keys for use in uses} == held


def test_late_labels_change_no_decision_training_set_model_or_score_as_known(world_of: Worlds) -> None:
    world = world_of(amount(selection=BALANCED))
    world.deliver(range(6))
    labels = delayed(at_once(world), 1)
    arrive_later(world)
    add_labels(world, labels)
    before, cells = replayed(world, "before"), cells_of(world)
    # Corrections of all labels, and labels that never came until now.
    corrections = [replace(each, value=1 - each.value, arrival=9, known_at=5) for each in labels]
    missing = [Label(key_of(ordinal, position), 0, 9) for ordinal in range(6) for position in range(0, 40)]
    add_labels(world, [*corrections, *missing])
    world.reload()
    assert replayed(world, "after") == before
    again = cells_of(world)
    shown = [(cell.value, cell.undefined, cell.n_labelled, cell.address) for cell in cells]
    assert [(cell.value, cell.undefined, cell.n_labelled, cell.address) for cell in again] == shown
    assert [cell.final_value for cell in again] != [cell.final_value for cell in cells]
    assert all(cell.final_arrival == 9 and cell.final_labelled == cell.n_samples for cell in again)


def test_live_decides_trains_and_scores_as_known_as_the_replay_although_later_labels_are_there(world_of: Worlds) -> None:
    world = world_of(amount(selection=BALANCED))
    world.deliver(range(6))
    labels = delayed(at_once(world), 1)
    arrive_later(world)
    add_labels(world, labels)
    world.live_until_idle("by_amount")
    world.replay("by_amount")
    live, replay = (world.outcome(world.run("by_amount", mode)) for mode in ("live", "replay"))
    for name in ("triggers", "training_sets", "models"):
        assert live[name] == replay[name], name
    # The replay has finished, and scored its last interval too.
    assert set(live["evaluations"]) <= set(replay["evaluations"])
    assert live["evaluations"]


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


def test_a_performance_trigger_waits_for_labels_below_its_coverage(world_of: Worlds) -> None:
    world = world_of(performance(every=60, decision={"rule": "threshold", "value": 1.01}, min_coverage=0.5))
    world.deliver(range(6))
    labels = at_once(world)
    arrive_later(world)
    # The first batches have their labels at once, the others a few batches later.
    add_labels(world, [replace(each, arrival=each.arrival + 3 * (each.arrival > 2)) for each in labels])
    world.replay("by_performance")
    reasons = [decision[4] for decision in world.decisions(world.run("by_performance", "replay"))]
    assert any("accuracy" in reason and "<=" in reason for reason in reasons)
    assert any("below min_coverage 50.0%" in reason for reason in reasons)


def test_drift_is_measured_on_samples_without_labels(world_of: Worlds) -> None:
    world = world_of(drift())
    world.deliver(range(6))
    labels = at_once(world)
    before = replayed_decisions(world, "with samples")
    arrive_later(world)
    add_labels(world, [each for each in labels if each.arrival < 2])
    after = replayed_decisions(world, "late")
    # The same points with the same windows; scores differ, as the models of later triggers do.
    assert [point for point, *_ in after[:2]] == [point for point, *_ in before[:2]]
    assert after[1][5] == before[1][5] is not None


def replayed_decisions(world: World, name: str) -> list[tuple]:
    world.replay("by_drift", name=name)
    return world.decisions(world.run_named("by_drift", name))


def test_a_view_up_to_any_batch_has_the_labels_of_then_whatever_position_it_had_before(late_world: World) -> None:
    add_labels(late_world, [Label(key_of(2, 3), 1, 2), Label(key_of(2, 3), 0, 9, known_at=5)])
    late_world.reload()
    whole = late_world.platform.view(DATASET)
    key = np.array([key_of(2, 3)], np.uint64)
    for ordinal in (2, 5, 7):
        assert whole.labelled_as_of(9).up_to(ordinal).label_position == min(ordinal, 5)
        assert whole.labelled_as_of(9).up_to(ordinal).labels_at(key) == 1
    assert whole.labelled_as_of(9).labels_at(key) == 0
    assert whole.up_to(5) is whole


@pytest.mark.parametrize("backend", ["arrow", "postgres"])
def test_targets_that_arrive_later_are_no_classes(world_of: Worlds, backend: str) -> None:
    world = world_of(amount())
    world.deliver(range(2))
    arrive_later(world)
    view = world.platform.view(DATASET)
    targets = np.array([0.25, 1.75, 40.5])
    keys = np.array([key_of(0, 1), key_of(0, 7), key_of(1, 0)], np.uint64)
    rows = LabelRows(keys, targets, np.zeros(3, np.int64).view("datetime64[us]"), np.arange(3, dtype=np.uint64))
    with world.platform.transaction() as conn:
        record_label_file(conn, view.row.id, 1, write_label_file(world.platform.home, DATASET, "targets", rows))
    assert view.spec.label is not None
    spec = view.spec.model_copy(update={"label": view.spec.label.model_copy(update={"kind": "target"})})
    view = DatasetView(view.engine, view.home, view.row, spec, "", view.batches)
    assert view.labels_at(keys).tolist() == targets.tolist()
    columns = WindowColumns(view, KeyRange(-1, view.last_key), backend)
    assert [(found.tolist(), classes.tolist()) for found, classes in columns.labels() if len(found)] in (
        [(keys.tolist(), [-1] * 3)],
        [(keys[:2].tolist(), [-1] * 2), (keys[2:].tolist(), [-1])],
    )


#: Label of a sample: arrival, value, time known.
rows = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3), st.integers(0, 2)), max_size=3)
plans = st.dictionaries(st.integers(0, 6 * 40 - 1), rows)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(15), deadline=None)
@given(data=st.data())
def test_a_view_knows_what_the_definition_says_in_any_order_of_label_files(late_world: World, data: st.DataObject) -> None:
    labels = [
        Label(key_of(number // 40, number % 40), value, max(arrival, number // 40), known_at)
        for number, rows in data.draw(plans).items()
        for arrival, value, known_at in rows
    ]
    arrivals = sorted({label.arrival for label in labels})
    replace_labels(late_world, labels, data.draw(st.permutations(arrivals)))
    whole = late_world.platform.view(DATASET)
    for ordinal in range(6):
        view = whole.up_to(ordinal)
        known = known_by_brute_force(labels, ordinal)
        visible = {key: value for key, value in known.items() if ordinal_of(key) <= ordinal}
        found: dict[int, int] = {}
        for batch in view.batches:
            values, is_known = view.labels(batch)
            assert (values[~is_known] == -1).all()
            found |= {key_of(batch.ordinal, int(row)): int(values[row]) for row in np.flatnonzero(is_known)}
        assert found == visible
        window = KeyRange(-1, view.last_key)
        for backend in ("arrow", "postgres"):
            columns = WindowColumns(view, window, backend)
            pairs = [(int(key), int(label)) for keys, values in columns.labels() for key, label in zip(keys, values, strict=True)]
            assert pairs == sorted(visible.items())
            assert [int(key) for keys in columns for key in keys] == sorted(visible)
        assert columns.count() == len(visible)
        keys = np.array(sorted(visible), np.uint64)
        labels_read = view.reader.read(keys).labels
        assert labels_read is not None
        assert labels_read.tolist() == [visible[int(key)] for key in keys]
        assert view.largest_class() == max((label.value for label in labels if label.arrival <= ordinal), default=-1)


@pytest.mark.long
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(5), deadline=None)
@given(seed=st.integers(0, 10_000), cut=st.integers(1, 4))
def test_whatever_arrives_after_a_position_changes_nothing_that_was_decided_up_to_it(
    late_world: World, seed: int, cut: int
) -> None:
    rng = np.random.default_rng(seed)

    def drawn(first: int) -> list[Label]:
        """Labels of all samples, corrections among them, that arrive from a position on."""
        rows = []
        for number in range(6 * 40):
            for known_at in range(int(rng.integers(0, 3))):
                arrival = int(rng.integers(number // 40, 9))
                rows.append(Label(key_of(number // 40, number % 40), int(rng.integers(0, 2)), arrival, known_at))
        return [row for row in rows if row.arrival >= first]

    known = [label for label in drawn(0) if label.arrival <= cut]
    ends = []
    for number in range(2):
        replace_labels(late_world, known + drawn(cut + 1))
        name = f"{seed} {cut} {number} {rng.integers(1 << 40)}"
        late_world.replay("by_amount", name=name)
        run = late_world.run_named("by_amount", name)
        with late_world.platform.transaction() as conn:
            triggers = [each for each in late_world.triggers(run.id) if ordinal_of(each.point) <= cut]
            rows = [find_training_set(conn, each.id) for each in triggers]
            reached = late_world.platform.view(DATASET).batches[cut].time_max
            cells = [
                cell
                for cell in list_evaluations(conn, run.id)
                if reached is not None and cell.interval_end <= reached and cell.ordinal < len(triggers)
            ]
        models = dict(each[:2] for each in late_world.outcome(run)["models"])
        ends.append(
            (
                [(each.key, each.point, each.reason, each.state, models.get(each.ordinal)) for each in triggers],
                [None if row is None else (row.checksum, row.details) for row in rows],
                [
                    (c.ordinal, c.interval_start, c.metric, c.value, c.undefined, c.n_labelled)
                    for c in cells
                    if c.ordinal < len(triggers)
                ],
            )
        )
    assert ends[0] == ends[1]


@pytest.fixture
def late_world(world_of: Worlds) -> World:
    """Six batches of forty samples each, whose labels arrive later; without any label."""
    world = world_of(amount(selection=BALANCED))
    world.deliver(range(6))
    arrive_later(world)
    return world
