"""Strategies and statements of a user's own in pipelines: live and replay, both backends, what is recorded, what is refused."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from modyn_dagster.assets.metadata.stages import selection_metadata
from modyn_dagster.catalog.results.training_sets import TrainingSetRow, find_training_set
from modyn_dagster.data.split import TRAIN
from modyn_dagster.errors import ConfigError, RunError, TriggerFailed
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.preflight import require_runnable
from modyn_dagster.pipeline.replay.lookahead import serial_reason
from modyn_dagster.pipeline.stages.training_set.checks import training_set_checks
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set, select_training_set
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from modyn_dagster.reproducibility.randomness import hash_keys, seed_for
from modyn_dagster.selection import TrainingSet
from modyn_dagster.values.digest import source_digest
from tests.pipeline.late_labels import add_labels, arrive_later, at_once, known_by_brute_force
from tests.pipeline.measuring import delete
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, USER_CODE, Content, amount, write_pipeline
from tests.variants import represented

Worlds = Callable[..., World]
MODULE = "tiny_strategies"


@pytest.fixture(autouse=True)
def user_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(USER_CODE)


def custom(factory: str, config: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"kind": "custom", "factory": f"{MODULE}:{factory}", "config": config or {}, **fields}


def sql(statement: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "sql", "statement": f"{MODULE}:{statement}", **fields}


def pipeline(strategy: dict[str, Any], name: str = "own", every: int = 60, **fields: Any) -> Content:
    backend = "postgres" if strategy["kind"] == "sql" or strategy.get("attributes") else "arrow"
    selection = {"backend": backend, "window": "all", "partition_size": 16, "strategy": strategy, **fields}
    return amount(name, every=every, selection=selection)


def sets_of(world: World, name: str = "own", mode: str = "replay") -> list[tuple[Any, TrainingSetRow, TrainingSet]]:
    """Contexts, rows and training sets of a run, in trigger order."""
    found = []
    for trigger in world.triggers(world.run(name, mode).id, "trained"):
        context = context_of(world.platform, name, trigger.partition_key)
        with world.platform.transaction() as conn:
            row = find_training_set(conn, trigger.id)
        assert row is not None
        found.append((context, row, open_training_set(context, row)))
    return found


KINDS = {
    "custom": custom("uniform", ratio=0.5),
    "custom weights": custom("newest", {"weight": 3.0}, size=20),
    "custom of attributes and uses": custom("unused_of_place", {"place": "1"}, attributes=["label"], usage=True, size=15),
    "sql with chances": sql("balanced"),
    "sql with size": sql("balanced", size=15),
    "sql without chances": sql("ones", ratio=0.2),
    "sql of attributes": sql("even_attributes"),
}


@represented("strategy", KINDS, "replays", "custom", "sql with size")
def test_live_equals_replay(world_of: Worlds, strategy: dict[str, Any]) -> None:
    world = world_of(pipeline(strategy), split={"train": 0.75, "evaluate": 0.25}, attributes=["label"])
    world.deliver(range(2))
    world.live_until_idle("own")
    world.deliver(range(2, 6))
    world.live_until_idle("own")
    list(finish_live_run(world.platform, world.run("own", "live")))
    world.replay("own")
    live, replayed = (world.outcome(world.run("own", mode)) for mode in ("live", "replay"))
    assert len(live["models"]) >= 2
    assert live == replayed
    for (_, before, _), (_, now, _) in zip(sets_of(world, mode="live"), sets_of(world), strict=True):
        assert before.details == now.details


def test_a_strategy_gets_the_window_and_gives_the_training_set(world_of: Worlds) -> None:
    world = world_of(
        pipeline(custom("uniform", ratio=0.5)),
        pipeline(custom("uniform", ratio=0.5), "on_postgres", backend="postgres", partition_size=7),
        split={"train": 0.75, "evaluate": 0.25},
    )
    world.deliver(range(5))
    delete(world, window_of_view(world)[::7])
    for name in ("own", "on_postgres"):
        world.replay(name)
    for (context, row, found), (_, _, other) in zip(sets_of(world), sets_of(world, "on_postgres"), strict=True):
        window = window_of_view(world, context.trigger.key)
        size = len(window) // 2
        seed = seed_for(seed_for(context.run.seed, "custom", context.trigger.ordinal), "")
        expected = np.sort(window[np.argsort(hash_keys(window, seed) >> np.uint64(11), kind="stable")[:size]])
        assert found.keys().tolist() == other.keys().tolist() == expected.tolist()
        np.testing.assert_allclose(found.weights(), len(window) / size, rtol=1e-6)
        assert (row.n_pool, row.n_samples) == (len(window), size)
        own = {"path": f"{MODULE}:uniform", "code": source_digest([f"{MODULE}:uniform"]), "certified": True}
        assert row.details["own_strategy"] == own
        shown = selection_metadata(context, row)
        assert (shown["backend"], shown["chosen_by"], shown["certified"]) == ("arrow", f"{MODULE}:uniform", "yes")


def window_of_view(world: World, until: int = 2**62) -> np.ndarray:
    """Train keys that are present, ascending, by brute force."""
    view = world.platform.view(DATASET)
    keys = np.concatenate([np.uint64(b.ordinal << 32) | np.arange(b.n_samples, dtype=np.uint64) for b in view.batches])
    keys = keys[keys <= np.uint64(until)]
    present: np.ndarray = keys[(view.sides(keys) == TRAIN) & ~view.deleted.among(keys)]
    return present


def test_a_statement_sees_the_windows_train_samples_alone(world_of: Worlds) -> None:
    world = world_of(pipeline(sql("balanced")), split={"train": 0.6, "calibrate": 0.1, "evaluate": 0.3})
    world.deliver(range(5))
    delete(world, window_of_view(world)[::7])
    world.replay("own")
    for context, row, found in sets_of(world):
        window = window_of_view(world, context.trigger.key)
        labels = context.view.labels_at(window)
        counts = np.bincount(labels, minlength=2)
        assert np.isin(found.keys(), window).all()
        chosen = context.view.labels_at(found.keys())
        assert np.bincount(chosen, minlength=2).tolist() == np.minimum(counts, 20).tolist()
        np.testing.assert_allclose(found.weights(), np.maximum(1, counts[chosen] / 20), rtol=1e-6)
        checks = {check.name: check for check in training_set_checks(row, found)}
        assert all(check.passed for check in checks.values())
        assert row.details["own_strategy"]["certified"]


@pytest.mark.soak("replays")
def test_of_more_keys_than_the_size_those_with_the_smallest_hashes_are_kept(world_of: Worlds) -> None:
    world = world_of(pipeline(sql("ones", size=11)), pipeline(sql("balanced", size=11), "sized"))
    world.deliver(range(3))
    for name in ("own", "sized"):
        world.replay(name)
    for context, row, found in sets_of(world):
        window = window_of_view(world, context.trigger.key)
        ones = window[context.view.labels_at(window) == 1]
        hashes = hash_keys(ones, seed_for(context.run.seed, "limit", context.trigger.ordinal))
        assert found.keys().tolist() == sorted(ones[np.argsort(hashes)[:11]].tolist())
        np.testing.assert_allclose(found.weights(), len(window) / 11, rtol=1e-6)
        assert not row.details["own_strategy"]["certified"]
        checks = {check.name: check for check in training_set_checks(row, found)}
        assert all(check.passed for check in checks.values())
        assert "uncertified" in checks["weights_sum"].description
        assert "uncertified" in checks["chances_sum"].description
        assert selection_metadata(context, row)["certified"].startswith("no")
    for context, _, found in sets_of(world, "sized"):
        window = window_of_view(world, context.trigger.key)
        counts = np.bincount(context.view.labels_at(window), minlength=2)
        chosen = context.view.labels_at(found.keys())
        np.testing.assert_allclose(
            found.weights(), np.maximum(1, counts[chosen] / 20) * np.minimum(counts, 20).sum() / 11, rtol=1e-6
        )


@represented("kind", ["custom", "sql"], "labels", "sql")
def test_labels_are_those_known_at_the_trigger(world_of: Worlds, kind: str) -> None:
    strategy = sql("ones") if kind == "sql" else custom("uniform")
    world = world_of(pipeline(strategy, every=55))
    world.deliver(range(5))
    labels = [replace(each, arrival=each.arrival + (2 if each.key % 3 else 0)) for each in at_once(world)]
    arrive_later(world)
    add_labels(world, labels)
    world.replay("own")
    found = sets_of(world)
    assert len(found) >= 2
    for context, row, chosen in found:
        known = known_by_brute_force(labels, context.trigger.point >> 32)
        expected = sorted(key for key, label in known.items() if key <= context.trigger.key and (kind != "sql" or label == 1))
        assert chosen.keys().tolist() == expected
        assert row.n_pool == sum(key <= context.trigger.key for key in known)


FAULTS = {
    "outside": "in the window: .*chose key",
    "twice": "at most once",
    "too many": "at most the size",
    "nan weight": "weights are finite",
    "vanishing weight": "weights are finite",
    "zero chance": "chances are above 0",
    "large chance": "chances are above 0",
    "lengths": "one key, and at most one weight",
    "mask": "must choose keys as an array",
    "negative": "not in the window",
    "list": "must return a Chosen",
    "raises": "failed: KeyError",
    "writes": "read-only",
}


@represented("fault", FAULTS, "replays", "outside", "nan weight")
def test_a_strategy_that_breaks_a_law_fails_its_attempt_and_writes_nothing(
    world_of: Worlds, fault: str, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    world = world_of(pipeline(custom("bad", {"fault": name}, size=20)))
    world.deliver(range(2))
    with pytest.raises(TriggerFailed, match=rf"pipeline own: selection\.strategy\.factory: .*{fault}"):
        world.replay("own")
    assert not list(world.platform.home.glob("training_sets/*/*"))
    run = world.run("own", "replay")
    for trigger in world.triggers(run.id):
        with world.platform.transaction() as conn:
            assert find_training_set(conn, trigger.id) is None


STATEMENTS = {
    "shifted": "in the window: .*chose key",
    "twice": "at most once",
    "null_key": "selects a key that is null",
    "null_chance": "chances are above 0 and at most 1: .*nan",
    "large_chance": "chances are above 0 and at most 1: .*2.0",
    "divides_by_zero": "cannot compute it: division by zero",
    "endless": "took longer than 1 s: .*nothing was selected",
    "volatile_hash": "pg_backend_pid.* depends on more than its arguments",
}


@represented("rule", STATEMENTS, "replays", "twice", "endless", "volatile_hash")
def test_a_statement_that_breaks_a_law_fails_its_attempt_and_writes_nothing(
    world_of: Worlds, rule: str, request: pytest.FixtureRequest
) -> None:
    world = world_of(pipeline(sql(request.node.callspec.id, timeout="1s")) | {"max_attempts": 1})
    world.deliver(range(2))
    with pytest.raises(TriggerFailed, match=rf"pipeline own: (`)?selection\.strategy\.statement.*{rule}"):
        world.replay("own")
    assert not list(world.platform.home.glob("training_sets/*/*"))


def test_code_that_changed_is_named_when_a_set_is_selected_again(world_of: Worlds) -> None:
    world = world_of(amount("another"))
    module = world.folder / "code" / "changing_strategy.py"
    module.write_text((USER_CODE / f"{MODULE}.py").read_text())
    strategy = {"kind": "custom", "factory": "changing_strategy:newest", "size": 20}
    write_pipeline(world.folder, pipeline(strategy))
    world.reload()
    world.deliver(range(3))
    world.replay("own")
    context, row, _ = sets_of(world)[0]
    try:
        assert select_training_set(context).checksum == row.checksum
        module.write_text(module.read_text().replace("weight: float = 2.0", "weight: float = 25.0"))
        importlib.invalidate_caches()
        del sys.modules["changing_strategy"]
        with pytest.raises(RunError, match="the code of changing_strategy:newest has changed since"):
            select_training_set(context)
    finally:
        sys.modules.pop("changing_strategy", None)


IMPOSSIBLE = {
    "missing function": (custom("nowhere"), r"selection\.strategy\.factory.*nowhere"),
    "bad config": (custom("newest", {"wieght": 1}), r"selection\.strategy\.config.*refused it.*wieght"),
    "no strategy": (custom("no_strategy"), "function of one argument, the samples of a window, not str"),
    "missing statement": (sql("nowhere"), r"selection\.strategy\.statement.*nowhere"),
    "no select": (sql("uniform"), r"failed on the samples of a window: TypeError"),
}


@pytest.mark.parametrize(("strategy", "rule"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_code_is_refused_before_a_run(world_of: Worlds, strategy: dict[str, Any], rule: str) -> None:
    world = world_of(pipeline(strategy))
    with pytest.raises(ConfigError, match=rf"pipeline own: .*{rule}"):
        require_runnable(world.platform.pipeline("own"), world.platform.dataset(DATASET))


def test_trainings_run_ahead_unless_the_strategy_counts_uses(world_of: Worlds) -> None:
    counting = custom("unused_of_place", {"place": "1"}, attributes=["label"], usage=True, size=15)
    world = world_of(pipeline(custom("uniform")), pipeline(counting, "counting"), pipeline(sql("ones"), "ones"))
    reasons = [serial_reason(world.platform.pipeline(name)) is None for name in ("own", "counting", "ones")]
    assert reasons == [True, False, True]
