"""Strategies in pipelines: the same training sets from both backends, and what they find in the catalog."""

import numpy as np
import pytest

from modyn_dagster.catalog.results.training_sets import find_training_set, mark_training_sets_removed
from modyn_dagster.data.windows.window_columns import WindowColumns
from modyn_dagster.errors import RunError, TriggerFailed
from modyn_dagster.ingestion.deletion.delete import delete_samples
from modyn_dagster.keys import key_of
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set, select_training_set
from modyn_dagster.selection import History, KeyRange, Selection, TrainingSet, Usage, write_training_set
from modyn_dagster.spec.selection import SelectionSpec
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, USER_CODE, amount

ON_BOTH = {
    "uniform": {"kind": "uniform", "ratio": 0.5},
    "without_replacement": {"kind": "uniform_without_replacement", "size": 40},
    "labels": {"kind": "balanced", "by": "label", "filling": "equal"},
    "triggers": {"kind": "balanced", "by": "trigger", "size": 31, "filling": "exact"},
    "freshness": {"kind": "freshness", "unused": 0.75, "size": 40},
}


def sets_of(world: World, name: str) -> list[TrainingSet]:
    """The training sets of a pipeline's replay, in trigger order."""
    found = []
    for trigger in world.triggers(world.run(name, "replay").id, "trained"):
        with world.platform.transaction() as conn:
            row = find_training_set(conn, trigger.id)
        assert row is not None
        found.append(open_training_set(context_of(world.platform, name, trigger.partition_key), row))
    return found


def test_strategies_give_the_same_training_sets_on_both_backends(world_of, tmp_path):
    world = world_of(amount(), split={"train": 0.7, "evaluate": 0.3})
    world.deliver(range(7))
    view = world.platform.view(DATASET)
    window = KeyRange(key_of(0, 11), key_of(6, 30))
    keys = np.concatenate(list(WindowColumns(view, window, "arrow")))
    delete_samples(world.platform.engine, world.platform.home, view.row, keys[::9])
    view = view.renewed()
    for name, strategy in ON_BOTH.items():
        written = []
        for backend, partition_size in (("arrow", 16), ("postgres", 16), ("arrow", 9), ("postgres", 90)):
            spec = SelectionSpec.model_validate({"strategy": strategy, "partition_size": partition_size, "backend": backend})
            history = History([key_of(2, 20), key_of(4, 3)], Usage([TrainingSet.of(keys[::3].copy())]))
            chosen = Selection(spec, WindowColumns(view, window, backend), seed=3, trigger=2, history=history)
            path = tmp_path / f"{name}_{backend}_{partition_size}.arrow"
            written.append((write_training_set(path, chosen).checksum, TrainingSet.open(path)))
        assert written[0][0] == written[1][0]
        for _, other in written[1:]:
            assert other.keys().tolist() == written[0][1].keys().tolist()
            assert other.weights().tolist() == written[0][1].weights().tolist()
        assert not np.isin(written[0][1].keys(), keys[::9]).any()
        assert len(written[0][1]) >= 30


@pytest.mark.soak("replays")
def test_without_replacement_walks_through_the_stream_trigger_by_trigger(world_of):
    strategy = {"kind": "uniform_without_replacement", "size": 70}
    world = world_of(amount("walk", every=100, selection={"window": "all", "strategy": strategy}))
    world.deliver(range(10))
    world.replay("walk")
    first, second, third, _ = (found.keys() for found in sets_of(world, "walk"))
    assert len(np.intersect1d(first, second)) == 0
    assert len(np.intersect1d(np.union1d(first, second), third)) == 0


@pytest.mark.soak("replays")
def test_attributes_balance_and_weigh_samples(world_of, monkeypatch):
    monkeypatch.syspath_prepend(USER_CODE)
    by_attribute = {"kind": "balanced", "by": {"attribute": "label"}, "size": 20, "weights": "equal"}
    by_label = {"kind": "balanced", "by": "label", "size": 20, "weights": "equal"}
    by_hour = {"kind": "weighted", "expression": "tiny_selection:later_hours", "size": 60}
    world = world_of(
        amount("by_attribute", every=120, selection={"strategy": by_attribute, "backend": "postgres"}),
        amount("by_label", every=120, selection={"strategy": by_label}),
        amount("by_hour", every=120, selection={"strategy": by_hour, "backend": "postgres"}),
        attributes=["label"],
    )
    world.deliver(range(3))
    for name in ("by_attribute", "by_label", "by_hour"):
        world.replay(name)
    assert sets_of(world, "by_attribute")[0].keys().tolist() == sets_of(world, "by_label")[0].keys().tolist()
    [chosen] = sets_of(world, "by_hour")
    view = world.platform.view(DATASET)
    late = [view.times(batch).astype("datetime64[h]").astype(int) % 24 >= 4 for batch in view.batches]
    is_late = np.concatenate(late)[((chosen.keys() >> np.uint64(32)) * 40 + (chosen.keys() & np.uint64(0xFFFFFFFF))).astype(int)]
    step = (3 * np.concatenate(late).sum() + (~np.concatenate(late)).sum()) / 60
    np.testing.assert_allclose(chosen.weights(), np.where(is_late, step / 3, step), rtol=1e-6)
    assert len(chosen) == 60


def test_an_expression_that_postgres_cannot_compute_is_named(world_of, monkeypatch):
    monkeypatch.syspath_prepend(USER_CODE)
    strategy = {"kind": "weighted", "expression": "tiny_selection:not_a_number", "size": 5}
    world = world_of(amount(every=30, selection={"strategy": strategy, "backend": "postgres"}))
    world.deliver(range(1))
    with pytest.raises(TriggerFailed, match=r"cannot compute .*division by zero"):
        world.replay("by_amount")


def test_a_training_set_that_is_gone_cannot_be_remembered(world_of):
    world = world_of(amount(every=60, selection={"window": "all", "strategy": {"kind": "freshness", "unused": 0.5, "size": 30}}))
    world.deliver(range(4))
    world.replay("by_amount")
    first, second = world.triggers(world.run("by_amount", "replay").id, "trained")
    context = context_of(world.platform, "by_amount", second.partition_key)
    before = select_training_set(context)
    assert before.n_samples == 30
    with world.platform.transaction() as conn:
        mark_training_sets_removed(conn, [first.id])
    with pytest.raises(RunError, match="ordinal 0 is gone"):
        select_training_set(context)
