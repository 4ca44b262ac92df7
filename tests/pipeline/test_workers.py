"""Replays with workers end as those of one process: the same decisions, files, models and scores, whatever goes wrong.

The pool of these tests makes its calls in this process; tests/distributed has replays with real workers.
"""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modyn_dagster.errors import TriggerFailed
from modyn_dagster.pipeline.platform import ahead_path, checkpoint_path
from modyn_dagster.pipeline.replay.lookahead import serial_reason
from modyn_dagster.pipeline.replay.training_ahead import AheadTraining
from modyn_dagster.triggering import build_policy
from tests.examples import examples
from tests.pipeline.deleting import delete, purge
from tests.pipeline.inline_pool import InlinePool
from tests.pipeline.same_end import both, end_of, forget_evaluations, replayed
from tests.pipeline.world import World
from tests.projects.tiny import Content, amount, timed, triggered, write_pipeline

SPLIT = {"train": 0.6, "calibrate": 0.1, "evaluate": 0.3}
EVERY_30: Content = {"kind": "amount", "every": 30}
EVERY_DAY: Content = {"kind": "time", "every": "1d"}

POLICIES: dict[str, Content] = {
    "amount": EVERY_30,
    "time": EVERY_DAY,
    "ensemble": {"kind": "ensemble", "policies": {"a": EVERY_30, "b": EVERY_DAY}, "rule": "all"},
    "cooldown": {"kind": "cooldown", "policy": EVERY_30, "duration": "20h"},
    "minimum": {"kind": "minimum_samples", "policy": EVERY_DAY, "samples": 25},
    "budget": {"kind": "budget", "policy": EVERY_30, "per": "3d", "triggers": 2},
    "capped": EVERY_30 | {"max_triggers": 3},
}


def drift(metrics: Content, windows: Content, decision: Content, **features: Any) -> Content:
    features = {"of": "columns"} | features
    return {"kind": "drift", "every": 15, "windows": windows, "features": features, "metrics": metrics, "decision": decision}


LAST_20: Content = {"by": "amount", "reference": 20, "current": 20}
FAR: Content = {"rule": "threshold", "value": 0.15}
KS: Content = {"ks": {"metric": "ks"}}
MMD: Content = {"mmd": {"metric": "mmd"}}
SOME: Content = {"rule": "threshold", "value": -0.01}
#: Policies of drift on inputs, whose triggers depend on no model as long as the columns are not standardised.
DRIFTS: dict[str, Content] = {
    "univariate": drift(KS, LAST_20, FAR),
    "by_time": drift({"w": {"metric": "wasserstein"}}, {"by": "time", "reference": "1d", "current": "1d"}, FAR),
    "mmd": drift(MMD, LAST_20 | {"overlap": True}, SOME),
    "reduced": drift(MMD, LAST_20, SOME, pca=1, sample_size=12),
    "two_metrics": drift(KS | MMD, LAST_20, {"rule": "quantile", "quantile": 0.5, "window": 4}),
    "inside": {"kind": "cooldown", "policy": drift(KS, LAST_20, FAR), "samples": 20},
    "ensemble": {"kind": "ensemble", "policies": {"a": EVERY_30, "b": drift(KS, LAST_20, FAR)}, "rule": "any"},
}
DECAY = {"keep": 0.5, "after": "1d"}
SELECTIONS: dict[str, Content] = {
    "all": {},
    "limited": {"limit": 17},
    "history": {"window": "all", "limit": 40},
    "last_two": {"window": {"last_triggers": 2}},
    "uniform": {"strategy": {"kind": "uniform", "ratio": 0.5}},
    "balanced": {"strategy": {"kind": "balanced", "by": "label", "filling": "equal"}},
    "warm": {"strategy": {"kind": "uniform", "ratio": 0.5}, "warmup_triggers": 2},
    "rtbs": {"strategy": {"kind": "rtbs", "n": 40, "decay": DECAY}},
    "rtbs_reset": {"strategy": {"kind": "rtbs", "n": 40, "decay": DECAY, "reset": "after_trigger"}},
    "reservoir": {"strategy": {"kind": "uniform_reservoir", "n": 30, "reset": "after_trigger"}},
    "sliding": {"strategy": {"kind": "sliding_window", "n": 50}},
    "gdumb": {"strategy": {"kind": "gdumb", "n": 30}},
}
TRAININGS: dict[str, Content] = {
    "plain": {},
    "network": {"model": {"name": "mlp", "hidden": [4]}},
    "downsampled": {"downsampling": {"policy": "loss", "ratio": 0.5}},
    "stopped_early": {"early_stopping": {"patience": 1}},
    "averaged": {"ema": {"decay": 0.9}},
}


def pipeline(name: str, trigger: Content, selection: Content, training: Content, matrix: str = "composite") -> Content:
    content = triggered(name, trigger, selection={"partition_size": 16} | selection)
    content["training"] |= {"model": {"name": "logistic_regression"}, "checkpoint": {"steps": 2}} | training
    content["evaluation"] |= {"matrix": matrix}
    return content


def cases(every: Content, few: str = "") -> list[Any]:
    """All cases for `make soak`, one of which is tried by `make test`, too."""
    return [case if case == few else pytest.param(case, marks=pytest.mark.soak("distributed")) for case in every]


@pytest.mark.soak("replays")
@pytest.mark.parametrize("policy", cases(POLICIES, "ensemble"))
def test_policies_that_know_no_model_are_trained_ahead(world_of, workers, policy: str) -> None:
    world = world_of(pipeline("tried", POLICIES[policy], {"limit": 25}, {}), split=SPLIT)
    world.deliver(range(6))
    pool = workers(2)
    alone, ahead = both(world, "tried", pool)
    assert ahead == alone
    assert pool.made.count("train_ahead") == len(alone.outcome["models"]) > 1


@pytest.mark.soak("distributed")
@pytest.mark.parametrize("policy", DRIFTS)
def test_drift_on_columns_as_they_are_is_trained_ahead(world_of, workers, policy: str) -> None:
    world = world_of(pipeline("tried", DRIFTS[policy], {"limit": 25}, {"standardize": False}), split=SPLIT)
    world.deliver(range(9))
    pool = workers(2)
    alone, ahead = both(world, "tried", pool)
    assert ahead == alone
    # No guess was wrong, not even one after a training whose model was not there yet.
    assert pool.made.count("train_ahead") == len(alone.outcome["models"]) > 2


@pytest.mark.soak("distributed")
@pytest.mark.parametrize(
    ("features", "standardize", "reason"),
    [("columns", True, "as the live model standardises them"), ("embeddings", False, "depend on models")],
)
def test_drift_that_the_newest_model_shapes_is_not_guessed(
    world_of, workers, caplog: pytest.LogCaptureFixture, features: str, standardize: bool, reason: str
) -> None:
    trigger = drift({"ks": {"metric": "ks"}}, LAST_20, FAR, of=features)
    world = world_of(pipeline("tried", trigger, {}, {"standardize": standardize}), split=SPLIT)
    world.deliver(range(6))
    pool = workers(2)
    with caplog.at_level(logging.WARNING):
        alone, ahead = both(world, "tried", pool)
    assert ahead == alone
    assert "train_ahead" not in pool.made
    assert reason in caplog.text


@pytest.mark.parametrize("selection", cases(SELECTIONS))
def test_training_sets_are_the_same_files(world_of, workers, selection: str) -> None:
    world = world_of(pipeline("tried", EVERY_30, SELECTIONS[selection], {}), split=SPLIT)
    world.deliver(range(6))
    pool = workers(3)
    alone, ahead = both(world, "tried", pool)
    assert ahead == alone
    assert pool.made.count("train_ahead") == len(alone.outcome["models"]) == 4


@pytest.mark.parametrize("training", cases(TRAININGS))
def test_models_are_the_same_whatever_their_training_needs(world_of, workers, training: str) -> None:
    world = world_of(pipeline("tried", EVERY_30, {}, TRAININGS[training], "full"), split=SPLIT)
    world.deliver(range(5))
    pool = workers(2)
    alone, ahead = both(world, "tried", pool)
    assert ahead == alone
    assert pool.made.count("train_ahead") == len(alone.outcome["models"]) == 4


@pytest.mark.soak("distributed")
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    policy=st.sampled_from(sorted(POLICIES)),
    selection=st.sampled_from(sorted(SELECTIONS)),
    training=st.sampled_from(sorted(TRAININGS)),
    matrix=st.sampled_from(["composite", "full", "active", "trained", "lazy"]),
    n_workers=st.integers(0, 6),
    seed=st.integers(0, 99),
)
def test_any_pipeline_ends_the_same(
    world_of, workers, policy: str, selection: str, training: str, matrix: str, n_workers: int, seed: int
) -> None:
    world = drawn_world(world_of)
    content = pipeline("tried", POLICIES[policy], SELECTIONS[selection], TRAININGS[training], matrix)
    write_pipeline(world.folder, content | {"seed": seed})
    world.reload()
    alone, ahead = both(world, "tried", workers(n_workers))
    assert ahead == alone


_WORLDS: dict[Any, World] = {}


def drawn_world(world_of: Callable[..., World]) -> World:
    """The world of all examples of a test."""
    if world_of not in _WORLDS:
        _WORLDS.clear()
        _WORLDS[world_of] = world_of(amount(), split=SPLIT)
        _WORLDS[world_of].deliver(range(5))
    return _WORLDS[world_of]


@pytest.mark.soak("distributed")
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (timed(), "use_previous_model"),
        (triggered("drifting", {"kind": "cost", "every": 30, "signal": "latency", "regret_per_training_second": 1e6}), "cost"),
        (amount(selection={"strategy": {"kind": "freshness", "unused": 0.5, "size": 20}}), "looks into their training sets"),
        (amount(selection={"strategy": {"kind": "mir", "n": 20, "k": 10}}), "models before"),
        (triggered("b", {"kind": "budget", "policy": EVERY_30, "per": "3d", "samples": 90}), "what trainings took"),
    ],
    ids=["previous_model", "cost", "freshness", "memory", "budget"],
)
def test_trainings_that_depend_on_each_other_are_made_one_after_the_other_and_that_is_said_once(
    world_of, workers, caplog: pytest.LogCaptureFixture, content: Content, reason: str
) -> None:
    world = world_of(content)
    world.deliver(range(4))
    pool = workers(2)
    with caplog.at_level(logging.WARNING):
        ahead = replayed(world, content["name"], "workers", pool)
    said = [record.getMessage() for record in caplog.records if "one model after the other" in record.getMessage()]
    assert len(said) == 1
    assert reason in said[0]
    assert "train_ahead" not in pool.made
    assert ahead.outcome["models"]


def test_members_and_inner_policies_decide_for_those_around_them() -> None:
    drift = {
        "kind": "drift",
        "every": 30,
        "windows": {"by": "amount", "reference": 30, "current": 30},
        "metrics": {"ks": {"metric": "ks"}},
        "decision": {"rule": "threshold", "value": 0.5},
    }
    measured = {"kind": "ensemble", "policies": {"a": EVERY_30, "b": drift}, "rule": "all"}
    for trigger in (drift, measured, {"kind": "cooldown", "policy": measured, "samples": 10}, drift | {"max_triggers": 2}):
        assert build_policy(trigger).depends_on_models
    assert build_policy({"kind": "budget", "policy": EVERY_30, "per": "1d", "seconds": 3.0}).depends_on_models
    for trigger in POLICIES.values():
        assert not build_policy(trigger).depends_on_models


@pytest.mark.soak("distributed")
def test_no_file_of_a_worker_is_left(world_of, workers) -> None:
    world = world_of(pipeline("tried", EVERY_30, {}, {}), split=SPLIT)
    world.deliver(range(5))
    replayed(world, "tried", "workers", workers(4))
    home, run = world.platform.home, world.run_named("tried", "workers")
    assert [*(home / ahead_path(run.id, 0)).parent.glob("*")] == []
    assert [*(home / checkpoint_path(run.id, 0)).parent.glob("*")] == []


@pytest.mark.soak("distributed")
def test_samples_deleted_under_the_workers_are_in_no_later_training_set(world_of, workers) -> None:
    world = world_of(pipeline("tried", EVERY_30, {"window": "all"}, {}), split=SPLIT)
    world.deliver(range(6))
    gone = [2 << 32 | position for position in range(20)]

    def disturb(item: AheadTraining) -> None:
        if isinstance(item, AheadTraining) and item.trigger.ordinal == 3 and pool.made.count("train_ahead") == 4:
            delete(world, gone)

    pool = workers(3, disturb)
    ahead = replayed(world, "tried", "workers", pool)
    assert pool.made.count("train_ahead") > len(ahead.outcome["models"])
    forget_evaluations(world)
    # Of one process, whose first models were trained before the deletion, as those with workers.
    alone = replayed(world, "tried", "alone")
    assert ahead.outcome["triggers"] == alone.outcome["triggers"]
    assert ahead.outcome["training_sets"][-1] == alone.outcome["training_sets"][-1]
    assert ahead.outcome["models"][-1][1] == alone.outcome["models"][-1][1]


@pytest.mark.soak("distributed")
def test_purged_samples_stop_no_replay(world_of, workers) -> None:
    world = world_of(pipeline("tried", EVERY_30, {"window": "all"}, {}), split=SPLIT)
    world.deliver(range(6))

    def disturb(item: AheadTraining) -> None:
        if isinstance(item, AheadTraining) and item.trigger.ordinal == 2 and pool.made.count("train_ahead") == 3:
            purge(world, [0, 1, 2])

    pool = workers(2, disturb)
    ahead = replayed(world, "tried", "workers", pool)
    assert [state for *_, state in ahead.outcome["triggers"]] == ["trained"] * len(ahead.outcome["models"])


def test_a_worker_that_fails_is_made_up_for(world_of, workers, caplog: pytest.LogCaptureFixture) -> None:
    world = world_of(pipeline("tried", EVERY_30, {}, {}), split=SPLIT)
    world.deliver(range(6))
    alone = replayed(world, "tried", "alone")
    forget_evaluations(world)

    pool: InlinePool = workers(2, after=lambda made: OSError(5, "Input/output error") if len(pool.made) in (2, 9) else made)
    ahead = replayed(world, "tried", "workers", pool)
    assert ahead == alone
    assert any("is trained again" in record.getMessage() for record in caplog.records)


@pytest.mark.soak("distributed")
def test_a_training_that_fails_in_a_worker_fails_as_it_does_alone(world_of, workers) -> None:
    content = pipeline("tried", EVERY_30, {}, {"optimizer": {"name": "sgd", "lr": 1e30}, "model": {"name": "mlp", "hidden": [4]}})
    world = world_of(content | {"max_attempts": 1}, split=SPLIT)
    world.deliver(range(4))
    told = []
    for name, pool in (("alone", None), ("workers", workers(2))):
        with pytest.raises(TriggerFailed) as failed:
            replayed(world, "tried", name, pool)
        told.append((failed.value.reason, end_of(world, world.run_named("tried", name)).outcome))
    assert told[0] == told[1]


@pytest.mark.soak("distributed")
@pytest.mark.parametrize("taken", [1, 4, 9])
def test_a_replay_left_in_the_middle_goes_on_with_another_number_of_workers(world_of, workers, taken: int) -> None:
    world = world_of(pipeline("tried", EVERY_30, {}, {}), split=SPLIT)
    world.deliver(range(6))
    alone = replayed(world, "tried", "alone")
    forget_evaluations(world)
    replayed(world, "tried", "workers", workers(3), taken)
    first = workers(2)
    assert replayed(world, "tried", "workers", first) == alone
    models = len(alone.outcome["models"])
    assert first.made.count("train_ahead") <= models
    assert replayed(world, "tried", "workers") == alone


@pytest.mark.soak("distributed")
def test_models_that_failed_are_in_no_window_of_those_after_them(world_of, workers) -> None:
    content = pipeline("tried", EVERY_30, {"strategy": {"kind": "rtbs", "n": 40, "decay": DECAY, "min_fill": 0.9}}, {})
    world = world_of(content, split=SPLIT)
    world.deliver(range(6))
    alone, ahead = both(world, "tried", workers(2))
    assert "skipped" in {state for *_, state in alone.outcome["triggers"]}
    assert ahead == alone


@pytest.mark.soak("distributed")
def test_evaluations_are_dealt_where_several_models_have_to_predict(world_of, workers) -> None:
    world = world_of(pipeline("tried", EVERY_30, {}, {}, "active"), split=SPLIT)
    world.deliver(range(6))
    pool = workers(2)
    alone, ahead = both(world, "tried", pool)
    assert ahead == alone
    assert pool.made.count("compute_in_worker") == len(alone.outcome["models"])
    assert alone.predictions


@pytest.mark.soak("distributed")
def test_a_policy_that_wrongly_claims_to_know_no_model_costs_time_alone(world_of, workers) -> None:
    trigger = {"kind": "custom", "factory": "tests.pipeline.claims:Claiming", "config": {"first": 30}}
    world = world_of(pipeline("tried", trigger, {"limit": 11}, {}), split=SPLIT)
    world.deliver(range(6))
    pool = workers(2)
    alone, ahead = both(world, "tried", pool)
    assert ahead == alone
    assert pool.made.count("train_ahead") > 2
    assert len(alone.outcome["models"]) > 2


@pytest.mark.soak("distributed")
def test_the_ledger_counts_the_seconds_of_the_workers(world_of, workers) -> None:
    world = world_of(pipeline("tried", EVERY_30, {}, {}), split=SPLIT)
    world.deliver(range(5))
    ahead = replayed(world, "tried", "workers", workers(2))
    assert ahead.stages == {"select": 4, "train": 4, "save": 4, "evaluate": 4}
    assert serial_reason(world.platform.pipeline("tried")) is None
