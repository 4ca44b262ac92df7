"""A trigger whose training was killed: the next attempt goes on from its checkpoint, and nothing is left of it afterwards."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from modyn_dagster.catalog.results.models import find_model
from modyn_dagster.catalog.triggers import TriggerRow, raise_attempt
from modyn_dagster.errors import ConfigError
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.decide.attempts import claim_context
from modyn_dagster.pipeline.operate.retention import apply_retention
from modyn_dagster.pipeline.stages.trigger_stages import model_stage, training_set_stage
from modyn_dagster.training import TrainingProgress
from tests.pipeline.world import World
from tests.projects.tiny import Content, amount

MakeWorld = Callable[..., World]


class Killed(BaseException):
    """No error that any code of ours handles, as a kill would be."""


def pipeline(**training: Any) -> Content:
    content = amount(every=40)
    content["training"] |= {"epochs": 3, "batch_size": 10, "checkpoint": {"steps": 1}} | training
    return content


def attempt(world: World, trigger: TriggerRow, number: int, kill_at: int = 0, slow: float = 0) -> list[int]:
    """One attempt of training a trigger; the steps it was told of. It may be killed at one, and take so long for the first."""
    steps: list[int] = []

    def told(progress: TrainingProgress) -> None:
        steps.append(progress.step)
        time.sleep(slow if progress.step == 1 else 0)
        if progress.step == kill_at:
            raise Killed

    current = context_of(world.platform, "by_amount", trigger.partition_key).trigger
    context = claim_context(world.platform, current, f"attempt {number}")
    model_stage(training_set_stage(context).context, told)
    return steps


def given_up(world: World, trigger: TriggerRow) -> None:
    """Give up the attempt, as the sensor does when its Dagster run is gone."""
    context = context_of(world.platform, "by_amount", trigger.partition_key)
    with world.platform.transaction() as conn:
        raise_attempt(conn, context.trigger, "its run was killed")


def checkpoints(world: World) -> list[Path]:
    return sorted((world.platform.home / "checkpoints").rglob("*.safetensors"))


def hash_of(world: World, trigger: TriggerRow) -> str:
    with world.platform.transaction() as conn:
        found = find_model(conn, trigger.id)
    assert found is not None
    return found.hash


def test_the_next_attempt_goes_on_and_commits_the_model_it_would_have_been(world_of: MakeWorld) -> None:
    world = world_of(pipeline())
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    with pytest.raises(Killed):
        attempt(world, trigger, 1, kill_at=7)
    assert len(checkpoints(world)) == 1
    given_up(world, trigger)
    assert attempt(world, trigger, 2) == [7, 8, 9, 10, 11, 12]
    assert checkpoints(world) == []
    # Training again, from its beginning, must reach the same hash, or it would raise.
    assert attempt(world, trigger, 2) == list(range(1, 13))
    assert checkpoints(world) == []


@pytest.mark.soak("replays")
def test_the_seconds_of_a_training_that_went_on_are_those_of_all_of_it(world_of: MakeWorld) -> None:
    world = world_of(pipeline() | {"model_store": {"retrain": True}})
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    with pytest.raises(Killed):
        attempt(world, trigger, 1, kill_at=11, slow=2)
    given_up(world, trigger)
    attempt(world, trigger, 2)
    provenance = world.platform.model_store.info(hash_of(world, trigger)).provenance
    assert provenance is not None
    # What it takes to train it again, from the beginning.
    assert provenance["seconds"] > 2


def test_retention_removes_what_a_kill_after_the_commit_left(world_of: MakeWorld) -> None:
    world = world_of(pipeline())
    world.deliver([0, 1])
    first = world.tick("by_amount").train
    assert first is not None
    with pytest.raises(Killed):
        attempt(world, first, 1, kill_at=5)
    (left,) = checkpoints(world)
    content = left.read_bytes()
    given_up(world, first)
    assert apply_retention(world.platform).checkpoints == 0, "the next attempt needs it"
    attempt(world, first, 2)
    left.write_bytes(content)
    removed = apply_retention(world.platform)
    assert (removed.checkpoints, removed.n_bytes) == (1, len(content))
    assert apply_retention(world.platform).checkpoints == 0


@pytest.mark.soak("replays")
def test_optimizer_states_are_carried_over_kept_and_removed(world_of: MakeWorld) -> None:
    carrying = pipeline(use_previous_model=True, carry_optimizer=True) | {"retention": {"optimizers": 1}}
    fresh = pipeline(use_previous_model=True) | {"name": "fresh"}
    world = world_of(carrying, fresh)
    world.deliver(range(3))
    for name in ("by_amount", "fresh"):
        world.live_until_idle(name)
    hashes = [[hash_of(world, t) for t in world.triggers(world.run(name, "live").id)] for name in ("by_amount", "fresh")]
    assert hashes[0][0] == hashes[1][0]
    assert hashes[0][1] != hashes[1][1]
    # Each is trained again from what was kept, and must reach the same hash.
    for trigger in world.triggers(world.run("by_amount", "live").id):
        attempt(world, trigger, 1)
    assert len(list((world.platform.home / "optimizers").rglob("*.safetensors"))) == 3
    assert apply_retention(world.platform).optimizers == 2


def test_early_stopping_watches_the_calibration_samples_of_the_window(world_of: MakeWorld) -> None:
    stopping = pipeline(epochs=50, early_stopping={"patience": 1, "min_delta": 0.5})
    world = world_of(stopping, split={"train": 0.5, "calibrate": 0.5})
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    for trigger in world.triggers(world.run("by_amount", "live").id, "trained"):
        with world.platform.transaction() as conn:
            model = find_model(conn, trigger.id)
        assert model is not None
        assert len(model.training["calibration_losses"]) == len(model.losses) < 50


def test_early_stopping_without_calibration_samples_is_refused_before_a_run(world_of: MakeWorld) -> None:
    world = world_of(pipeline(early_stopping={}))
    world.deliver([0])
    with pytest.raises(ConfigError, match=r"pipeline by_amount: training.early_stopping: .*needs a share `calibrate`"):
        world.live_until_idle("by_amount")


def test_a_training_is_recorded_with_its_steps_stages_and_surroundings(world_of: MakeWorld) -> None:
    world = world_of(pipeline())
    world.deliver([0])
    world.live_until_idle("by_amount")
    (trigger,) = world.triggers(world.run("by_amount", "live").id)
    with world.platform.transaction() as conn:
        model = find_model(conn, trigger.id)
    assert model is not None
    assert model.training["n_steps"] == 12
    assert model.training["surroundings"]["threads"] == 1
    assert [epoch["n_samples"] for epoch in model.training["epochs"]] == [40, 40, 40]
    assert {"data", "forward", "backward", "step"} <= set(model.training["epochs"][0]["seconds"])


def test_a_run_starts_from_a_file_of_weights(world_of: MakeWorld) -> None:
    still = {"optimizer": {"name": "sgd", "lr": 1e-30}, "epochs": 1}
    world = world_of(pipeline(), pipeline(initial_weights="weights.safetensors", **still) | {"name": "from_file"})
    world.deliver([0])
    world.live_until_idle("by_amount")
    (trigger,) = world.triggers(world.run("by_amount", "live").id)
    save_file(world.platform.model_store.load(hash_of(world, trigger)), world.folder / "weights.safetensors")
    world.live_until_idle("from_file")
    (other,) = world.triggers(world.run("from_file", "live").id)
    assert hash_of(world, other) == hash_of(world, trigger)


def test_a_file_of_weights_that_is_not_there_is_named(world_of: MakeWorld) -> None:
    world = world_of(pipeline(initial_weights="nowhere.safetensors"))
    world.deliver([0])
    with pytest.raises(ConfigError, match=r"pipeline by_amount: training.initial_weights: cannot be read"):
        world.live_until_idle("by_amount")


@pytest.mark.parametrize("outside", ["/etc/hostname", "../weights.safetensors", "link.safetensors"])
def test_a_file_of_weights_outside_the_project_is_refused(world_of: MakeWorld, outside: str) -> None:
    world = world_of(pipeline(initial_weights=outside))
    (world.folder / "link.safetensors").symlink_to("/etc/hostname")
    world.deliver([0])
    with pytest.raises(ConfigError, match=r"training.initial_weights: must be a file below the project's folder"):
        world.live_until_idle("by_amount")
