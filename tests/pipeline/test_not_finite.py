"""A loss that is not finite ends a trigger with an error, and the model before stays the active one."""

import pytest

from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.errors import TriggerFailed
from tests.projects.tiny import amount


def test_the_model_before_stays_active_and_the_replay_fails(world_of):
    content = amount(every=80, max_attempts=2)
    content["training"] |= {"standardize": False, "optimizer": {"name": "sgd", "lr": 1.0}}
    world = world_of(content)
    world.deliver([0, 1])
    world.deliver([2, 3], shift=1e30)
    with pytest.raises(TriggerFailed, match=r"the loss is (nan|inf)"):
        world.replay("by_amount")
    run = world.run("by_amount", "replay")
    first, second = world.triggers(run.id)
    assert (first.state, second.state, second.attempt) == ("trained", "failed", 2)
    for part in ("at step", "keys", "the norm of weights", "the norm of the last gradient"):
        assert part in str(second.error)
    with world.platform.transaction() as conn:
        [model] = list_models(conn, run.id)
    assert (model.trigger_id, model.hash) == (first.id, run.previous_model)
