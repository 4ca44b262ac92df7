"""Memories in pipelines: fed from the model that was the newest then, live as in a replay, on both backends."""

import numpy as np
import pytest
import torch

from modyn_dagster.data.split import TRAIN
from modyn_dagster.errors import ConfigError
from modyn_dagster.keys import ORIGIN, KeyRange, key_of
from modyn_dagster.pipeline.stages.training_set.replay_memory import cross_entropy_gradients, squared_error_gradients
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.selection.memory import GDumb
from modyn_dagster.selection.online.samplers import check_selection
from modyn_dagster.spec.selection import SelectionSpec
from tests.pipeline.measuring import delete
from tests.pipeline.test_online import keys_of, online, rows_of
from tests.projects.tiny import DATASET, ROWS
from tests.variants import represented

MEMORIES = {
    "gdumb": {"kind": "gdumb", "n": 30},
    "clib": {"kind": "clib", "n": 30},
    "gss": {"kind": "gss", "n": 30},
    "mir": {"kind": "mir", "n": 30, "k": 10},
}


@represented("name", list(MEMORIES), "replays", "gss")
def test_live_equals_replay_on_either_backend(world_of, name):
    strategy = MEMORIES[name]
    on_postgres = online(f"{name}_postgres", strategy, selection={"backend": "postgres"})
    world = world_of(online(name, strategy), on_postgres, online(f"{name}_reset", strategy | {"reset": "after_trigger"}))
    for days in ([0], [1, 2], [3], [4, 5]):
        world.deliver(days)
        world.live_until_idle(name)
    list(finish_live_run(world.platform, world.run(name, "live")))
    for each in (name, f"{name}_postgres", f"{name}_reset"):
        world.replay(each)
    live, replayed = (world.outcome(world.run(name, mode)) for mode in ("live", "replay"))
    assert len(live["models"]) == 3
    assert live == replayed
    assert world.outcome(world.run(f"{name}_postgres", "replay"))["training_sets"] == live["training_sets"]
    states = [[row.details["state"]["checksum"] for row in rows_of(world, name, mode)] for mode in ("live", "replay")]
    assert states[0] == states[1]
    reset = keys_of(world, f"{name}_reset")
    triggers = world.triggers(world.run(f"{name}_reset", "replay").id)
    assert all(min(keys) > before.key for keys, before in zip(reset[1:], triggers[:-1], strict=True))
    assert reset[0] == keys_of(world, name)[0]


@pytest.mark.soak("replays")
def test_a_lost_state_is_computed_again_from_the_models_of_then(world_of):
    world = world_of(*(online(name, MEMORIES[name]) for name in ("clib", "mir")))
    for days in ([0, 1], [2, 3], [4, 5]):
        world.deliver(days)
        for name in ("clib", "mir"):
            world.live_until_idle(name)
            for row in rows_of(world, name, "live"):
                (world.platform.home / row.details["state"]["path"]).unlink(missing_ok=True)
    for name in ("clib", "mir"):
        world.replay(name)
        assert keys_of(world, name) == keys_of(world, name, "live")


def test_gdumb_gets_the_batches_with_their_classes(world_of):
    world = world_of(online("gdumb", MEMORIES["gdumb"]))
    world.deliver(range(6))
    world.replay("gdumb")
    memory = GDumb(30, seed_for(7, "online", -1))
    view = world.platform.view(DATASET)
    expected: list[tuple[int, list[int]]] = []
    for trigger in world.triggers(world.run("gdumb", "replay").id):
        after = expected[-1][0] if expected else ORIGIN
        for keys, labels in view.scan(KeyRange(after, trigger.key), TRAIN):
            assert labels is not None
            memory.update(keys, labels)
        expected.append((trigger.key, sorted(memory.sample().tolist())))
    assert keys_of(world, "gdumb") == [keys for _, keys in expected]


def test_mir_trains_on_all_that_is_new_and_some_of_what_was(world_of):
    world = world_of(online("mir", MEMORIES["mir"]))
    world.deliver(range(6))
    world.replay("mir")
    stream = [key_of(day, i) for day in range(6) for i in range(ROWS)]
    first, second, third = keys_of(world, "mir")
    assert first == stream[:70]
    assert second[10:] == stream[70:140]
    assert set(second[:10]) < set(stream[:70])
    assert third[10:] == stream[140:210]
    assert set(third[:10]) < set(stream[:140])


@pytest.mark.soak("replays")
def test_deleted_samples_leave_a_memory(world_of):
    world = world_of(*(online(name, MEMORIES[name]) for name in ("gss", "mir")))
    world.deliver(range(6))
    for name in ("gss", "mir"):
        world.replay(name, world.keys()[:4])
    delete(world, gone := [key_of(day, i) for day in range(6) for i in range(0, ROWS, 2)])
    for name in ("gss", "mir"):
        world.replay(name, world.keys()[4:])
        last = rows_of(world, name)[-1]
        assert not set(keys_of(world, name)[-1]) & set(gone)
        assert last.n_pool == 105
        assert last.n_samples > 0


@pytest.mark.parametrize("kind", ["gdumb", "clib"])
def test_memories_that_balance_classes_need_classes(kind):
    spec = SelectionSpec.model_validate({"strategy": MEMORIES[kind]})
    check_selection(spec, "class", source="pipeline p")
    with pytest.raises(ConfigError, match=rf"pipeline p: selection\.strategy\.kind.*balances classes.*'{kind}'"):
        check_selection(spec, "target", source="pipeline p")


def test_losses_and_gradients_are_those_of_torch():
    rng = np.random.default_rng(0)
    logits, truth = rng.normal(size=(20, 4)) * 30, rng.integers(0, 4, 20)
    leaf = torch.tensor(logits, requires_grad=True)
    losses = torch.nn.functional.cross_entropy(leaf, torch.tensor(truth), reduction="none")
    [gradient] = torch.autograd.grad(losses.sum(), leaf)
    errors, found = cross_entropy_gradients(logits, truth)
    np.testing.assert_allclose(found, losses.detach().numpy(), atol=1e-12)
    np.testing.assert_allclose(errors, gradient.numpy(), atol=1e-12)
    targets = rng.normal(size=20)
    leaf = torch.tensor(logits[:, :1], requires_grad=True)
    losses = torch.nn.functional.mse_loss(leaf[:, 0], torch.tensor(targets), reduction="none")
    [gradient] = torch.autograd.grad(losses.sum(), leaf)
    errors, found = squared_error_gradients(logits[:, :1], targets)
    np.testing.assert_allclose(found, losses.detach().numpy())
    np.testing.assert_allclose(errors, gradient.numpy())


def test_a_class_the_model_does_not_know_is_as_improbable_as_can_be_and_no_class_teaches_nothing():
    logits = np.array([[1.0, 3.0], [1.0, 3.0], [1.0, 3.0]])
    errors, losses = cross_entropy_gradients(logits, np.array([2, -1, 1]))
    share = np.exp([-2.0, 0.0]) / np.exp([-2.0, 0.0]).sum()
    np.testing.assert_allclose(errors, [share, [0, 0], share - [0, 1]])
    assert losses.tolist() == pytest.approx([-np.log(np.finfo(np.float64).tiny), 0, -np.log(share[1])])
