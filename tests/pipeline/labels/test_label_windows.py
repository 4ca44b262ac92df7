"""Windows of selection, and counts of triggers, by the arrival of labels: against the definition, sample by sample."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modyn_dagster.catalog.decisions import measurements_after
from modyn_dagster.catalog.results.training_sets import TrainingSetRow
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.triggers import TriggerRow
from modyn_dagster.data.split import CALIBRATE, TRAIN
from modyn_dagster.data.view import DatasetView
from modyn_dagster.errors import ConfigError
from modyn_dagster.keys import ORIGIN, KeyRange, key_of, ordinal_of
from modyn_dagster.pipeline.context import TriggerContext, context_of
from modyn_dagster.pipeline.operate.sample_lineage import usages_of
from modyn_dagster.pipeline.preflight import require_runnable
from modyn_dagster.pipeline.stages.model.training import calibration_keys
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set, select_training_set
from tests.examples import examples
from tests.pipeline.deleting import delete, execute
from tests.pipeline.labels.laws import DAYS, EVERYTHING, GAP, Delivery, drawn_labels, known_by, replayed
from tests.pipeline.labels.pipelines import BY_LABEL, POLICIES, SELECTIONS, TRIGGERS, Block, pipeline_of
from tests.pipeline.late_labels import Label, add_labels, arrive_later, at_once, known_by_brute_force
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, ROWS, amount

Worlds = Callable[..., World]

SOAK = pytest.mark.soak("labels")
SPLIT = {"train": 0.7, "calibrate": 0.3}
DRAWN = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=max(1, examples(5) // 10), deadline=None
)


def by_label(trigger: Block, backend: str = "arrow", name: str = "late", **training: Any) -> dict[str, Any]:
    """A pipeline that trains on each label once, when it arrives."""
    content = amount(name, selection={"window_by": "label", "backend": backend})
    content["training"] |= {"epochs": 1, **training}
    return content | {"trigger": trigger}


def late_world(world_of: Worlds, *pipelines: dict[str, Any], **label: Any) -> World:
    world = world_of(*pipelines, split=SPLIT)
    world.deliver(range(DAYS))
    arrive_later(world, GAP, **label)
    return world


def usable(view: DatasetView, labels: list[Label], key: int, ordinal: int, side: int = TRAIN) -> set[int]:
    """Samples up to a key with a label at the arrival of a batch, from the definition."""
    known = known_by_brute_force(labels, GAP * ordinal)
    return {each for each in view.keys_on(side, KeyRange(ORIGIN, key)).tolist() if each in known}


def trained(world: World, run: RunRow) -> list[tuple[TriggerRow, TriggerContext, TrainingSetRow]]:
    """Trained triggers of a run with their training sets, in order."""
    found = []
    for trigger in world.triggers(run.id, "trained"):
        context = context_of(world.platform, run.pipeline, trigger.partition_key)
        assert context.training_set is not None
        found.append((trigger, context, context.training_set))
    return found


def keys_of(context: TriggerContext, row: TrainingSetRow) -> list[int]:
    keys: list[int] = open_training_set(context, row).keys().tolist()
    return keys


@pytest.mark.soak("labels")
@pytest.mark.long
@pytest.mark.parametrize("backend", ["arrow", pytest.param("postgres", marks=SOAK)])
@pytest.mark.parametrize("kind", ["time", *(pytest.param(each, marks=SOAK) for each in ("amount", "amount of labels"))])
def test_every_labelled_sample_is_in_the_window_in_which_its_label_arrived_and_in_no_other(
    world_of: Worlds, kind: str, backend: str
) -> None:
    world = late_world(world_of, by_label(TRIGGERS[kind], backend))
    view = world.platform.view(DATASET)

    @DRAWN
    @given(seed=st.integers(0, 10_000))
    def law(seed: int) -> None:
        labels = drawn_labels(seed)
        Delivery.of(labels, seed)(world)
        seen = set[int]()
        for trigger, context, row in trained(world, replayed(world, "late", f"{seed}")):
            now = usable(view, labels, trigger.key, ordinal_of(trigger.point))
            keys = keys_of(context, row)
            assert keys == sorted(now - seen)
            assert row.details["n_unlabelled"] == len(view.keys_on(TRAIN, KeyRange(ORIGIN, trigger.key))) - len(now)
            assert row.after < min(keys)
            # The same bytes, or an error.
            select_training_set(context)
            seen |= set(keys)
            assert seen == now
        assert seen

    law()


@pytest.mark.long
@pytest.mark.parametrize("origin", [key_of(1, 11), pytest.param(ORIGIN, marks=SOAK)])
def test_a_trigger_that_counts_labels_fires_at_the_first_sample_with_enough_of_them(world_of: Worlds, origin: int) -> None:
    world = late_world(world_of, by_label({"kind": "amount", "every": 25, "count": "labels"}))
    labels = drawn_labels(8)
    Delivery.of(labels, 8)(world)
    begun = ordinal_of(origin) + 1
    world.replay("late", world.keys()[begun:], name="late")
    run = world.run_named("late", "late")
    view = world.platform.view(DATASET)
    points, before = list[int](), usable(view, labels, run.origin, ordinal_of(run.origin))
    for key in view.keys_on(TRAIN, KeyRange(run.origin, view.last_key)).tolist():
        now = usable(view, labels, key, ordinal_of(key))
        if len(now - before) >= 25:
            points.append(key)
            before = now
    assert [trigger.key for trigger in world.triggers(run.id)] == points
    assert len(points) > 1
    assert world.triggers(run.id)[0].reason == "25 labels"


def once(variants: list[str], shown: str) -> pytest.MarkDecorator:
    """All of these variants: one in `make test`, the others in the soak suite."""
    chosen = [each for each in variants if each.endswith(BY_LABEL)]
    marks = {each: () if each == shown else SOAK for each in chosen}
    return pytest.mark.parametrize("variant", [pytest.param(each, marks=marks[each]) for each in chosen])


@pytest.mark.soak("labels")
@pytest.mark.long
@once([*SELECTIONS, *POLICIES], "balanced over triggers by label")
def test_windows_by_label_are_those_by_sample_where_labels_come_with_their_samples(world_of: Worlds, variant: str) -> None:
    label, sample = pipeline_of(variant, "label"), pipeline_of(variant, "sample")
    del sample["selection"]["window_by"]
    world = world_of(label, sample, split=SPLIT)
    world.deliver(range(DAYS))
    labels = at_once(world, GAP)
    arrive_later(world, GAP)
    add_labels(world, labels)
    facts, rows = list[dict[str, Any]](), list[list[tuple[Any, ...]]]()
    for name in ("label", "sample"):
        run = replayed(world, name, "at once")
        facts.append(known_by(world, run, EVERYTHING))
        # Samples that are still unlabelled count from the beginning in the one, and in the window in the other.
        facts[-1]["training_sets"] = [each[:2] for each in facts[-1]["training_sets"]]
        rows.append([(row.after, row.until, row.time_min, row.time_max) for *_, row in trained(world, run)])
    assert rows[0] == rows[1]
    assert facts[0] == facts[1]
    assert facts[0]["training_sets"]


def test_samples_enter_the_window_in_which_the_default_label_closes_them(world_of: Worlds) -> None:
    world = late_world(world_of, by_label(TRIGGERS["amount"]), default_after={"label": 0, "after": "1d"})
    labels = [Label(key_of(0, place), 1, 2 * GAP) for place in range(0, ROWS, 2)]
    Delivery.of(labels, 0)(world)
    view, seen = world.platform.view(DATASET), set[int]()
    for trigger, context, row in trained(world, replayed(world, "late", "closed")):
        here = view.up_to(ordinal_of(trigger.point))
        keys = keys_of(context, row)
        assert keys == sorted(set(here.keys_on(TRAIN, KeyRange(ORIGIN, trigger.key), labelled=True).tolist()) - seen)
        seen |= set(keys)
    # Positives of the first day that come after the default was counted are no news.
    assert {key_of(0, 0), key_of(0, 2)} & seen == {key_of(0, 0), key_of(0, 2)} & set(view.keys_on(TRAIN, KeyRange(-1, ROWS)))


@pytest.mark.soak("labels")
def test_early_stopping_watches_the_calibration_samples_that_got_their_label_in_the_window(world_of: Worlds) -> None:
    world = late_world(world_of, by_label(TRIGGERS["amount"], early_stopping={"patience": 1}))
    labels = drawn_labels(4)
    Delivery.of(labels, 4)(world)
    view, seen = world.platform.view(DATASET), set[int]()
    for trigger, context, row in trained(world, replayed(world, "late", "stopping")):
        watched = calibration_keys(context, row)
        assert watched is not None
        now = usable(view, labels, trigger.key, ordinal_of(trigger.point), CALIBRATE)
        assert watched.tolist() == sorted(now - seen)
        seen = now
    assert seen


@pytest.mark.soak("labels")
def test_triggers_calibrate_on_samples_that_got_their_label_in_the_window_of_the_model_or_since(world_of: Worlds) -> None:
    world = late_world(world_of, pipeline_of("performance avoidable by label"))
    labels = drawn_labels(5)
    Delivery.of(labels, 5)(world)
    run = replayed(world, "late", "calibrated")
    view, models = world.platform.view(DATASET), trained(world, run)
    measured = 0
    for (before, *_), (newest, context, _) in pairwise(models):
        assert context.model is not None
        with world.platform.transaction() as conn:
            rows = measurements_after(conn, run.id, context.model.hash, newest.point, 100)
        earlier = usable(view, labels, before.key, ordinal_of(before.point), CALIBRATE)
        for row in rows:
            now = usable(view, labels, newest.key, ordinal_of(row.point), CALIBRATE)
            assert row.details[""]["calibrate_window"]["samples"] == len(now - earlier)
            measured += 1
    assert measured


@pytest.mark.soak("labels")
def test_stretches_of_a_window_by_label_end_with_the_triggers_that_first_knew_a_label(world_of: Worlds) -> None:
    strategy = {"kind": "balanced", "by": "trigger", "size": 16, "filling": "exact"}
    content = by_label(TRIGGERS["amount"])
    content["selection"] |= {"window": {"last_triggers": 2}, "strategy": strategy}
    world = late_world(world_of, content)
    # Labels of one day in two come two days late: stretches by sample are other ones.
    arrivals = [(day, place, day + 2 * (place % 2)) for day in range(DAYS) for place in range(ROWS)]
    labels = [Label(key_of(day, place), place % 3 % 2, GAP * came) for day, place, came in arrivals]
    Delivery.of(labels, 2)(world)
    view, ends = world.platform.view(DATASET), [set[int]()]
    for trigger, context, row in trained(world, replayed(world, "late", "stretches")):
        ends.append(usable(view, labels, trigger.key, ordinal_of(trigger.point)))
        keys = set(keys_of(context, row))
        if len(ends) > 2:
            assert [len(keys & (now - before)) for before, now in pairwise(ends[-3:])] == [8, 8]
    assert len(ends) > 3


@pytest.mark.soak("labels")
def test_a_sample_that_got_its_label_late_is_found_in_the_later_set_and_goes_from_it(world_of: Worlds) -> None:
    world = late_world(world_of, by_label(TRIGGERS["amount"]))
    arrivals = [(day, place, day + (2 if place < 10 else 0)) for day in range(DAYS) for place in range(ROWS)]
    Delivery.of([Label(key_of(day, place), place % 2, GAP * came) for day, place, came in arrivals], 1)(world)
    before = trained(world, replayed(world, "late", "late"))
    keys = keys_of(*before[-1][1:])
    late = next(key for key in keys if key <= before[-2][0].key)
    platform, dataset = world.platform, world.platform.view(DATASET).row
    [use] = usages_of(platform, dataset.id, world.platform.view(DATASET).keys_on(TRAIN, KeyRange(late - 1, late)))
    assert (use.used_by.ordinal, use.n_keys) == (before[-1][0].ordinal, 1)
    document = execute(world, [late])
    assert [model.trigger for model in document.models] == [before[-1][0].partition_key]
    after = trained(world, world.run_named("late", "late"))
    assert keys_of(*after[-1][1:]) == [key for key in keys if key != late]
    assert [row.checksum for *_, row in after[:-1]] == [row.checksum for *_, row in before[:-1]]


@pytest.mark.long
@SOAK
def test_a_set_is_made_again_after_deletions_without_samples_of_other_windows(world_of: Worlds) -> None:
    world = late_world(world_of, by_label(TRIGGERS["amount"]))
    Delivery.of(drawn_labels(6), 6)(world)
    before = [keys_of(context, row) for _, context, row in trained(world, replayed(world, "late", "once"))]
    gone = {key for keys in before for key in keys[::3]}
    delete(world, sorted(gone))
    again = [keys_of(context, row) for _, context, row in trained(world, replayed(world, "late", "again"))]
    assert again == [[key for key in keys if key not in gone] for keys in before]


def test_what_makes_no_sense_is_refused_by_pipeline_and_field(world_of: Worlds) -> None:
    counting = amount("counting") | {"trigger": {"kind": "amount", "every": 9, "count": "labels"}}
    nested = amount("nested") | {"trigger": {"kind": "cooldown", "samples": 3, "policy": counting["trigger"]}}
    warmed = amount("warmed")
    warmed["trigger"] = {"kind": "cost", "signal": "latency", "regret_per_training_second": 1}
    warmed["trigger"] |= {"warmup": {"intervals": 2, "policy": counting["trigger"]}}
    world = world_of(by_label(TRIGGERS["amount"]), counting, nested, warmed)
    world.deliver(range(1))
    dataset = world.platform.dataset(DATASET)
    for name, place in {
        "late": r"selection.window_by",
        "counting": r"trigger.count",
        "nested": r"trigger.policy.count",
        "warmed": r"trigger.warmup.policy.count",
    }.items():
        with pytest.raises(ConfigError, match=rf"{name}.*{place}.*come with their samples"):
            require_runnable(world.platform.pipeline(name), dataset)
    arrive_later(world)
    for name in ("late", "counting", "nested", "warmed"):
        require_runnable(world.platform.pipeline(name), world.platform.dataset(DATASET))
    with pytest.raises(ConfigError, match=r"window_by: strategies that follow the stream"):
        world_of(amount(selection={"window_by": "label", "strategy": {"kind": "gdumb", "n": 5}}))
