"""Ways of a deletion for a run with a gate: a champion that saw the samples goes, and one that did not stays as it is."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.keys import KeyArray
from modyn_dagster.pipeline.operate.deletion.document import Way
from modyn_dagster.pipeline.promotion.actions import act
from tests.pipeline.deleting import execute, plan
from tests.pipeline.promotion.test_deletion import asking, consistent, hashes, lived, samples_of, state_of
from tests.pipeline.world import World

WorldOf = Callable[..., World]

#: Trigger of the champion; earlier and later ones are the first champion and candidates.
CHAMPION = 1


@pytest.fixture
def world(world_of: WorldOf) -> World:
    return world_of(asking())


def begun(world: World) -> RunRow:
    run = lived(world, range(4))
    act(world.platform, run, "promote", CHAMPION, "ann", "it is needed")
    return run


def samples(world: World, run: RunRow, triggers: Iterable[int]) -> KeyArray:
    """A sample of each of some training sets."""
    return np.concatenate([samples_of(world, run, trigger)[:1] for trigger in triggers])


@pytest.mark.soak("deletions")
def test_the_ledger_trains_again_where_the_champion_or_the_newest_model_saw_the_samples(world: World) -> None:
    run = begun(world)
    models = hashes(world, run)
    newest = max(models)
    assert len(models) > 3

    def way(*triggers: int) -> Way:
        [action] = (found := plan(world, samples(world, run, triggers))).actions
        # Models of other triggers are in no plan.
        assert {model.model for model in found.models} == {models[each] for each in triggers}
        return action.way

    assert {way(0), way(2), way(0, 2)} == {"roll_back"}
    assert {way(CHAMPION), way(0, CHAMPION), way(newest), way(0, newest), way(*models)} == {"retrain"}


@pytest.mark.soak("deletions")
@pytest.mark.parametrize("chosen", ["retrain", "roll_back", None])
@pytest.mark.parametrize("seen", [(0, CHAMPION), (CHAMPION, 2), (0, 2)], ids=str)
def test_after_a_deletion_no_champion_saw_the_samples_and_one_that_did_not_is_the_champion_still(
    world: World, seen: tuple[int, ...], chosen: Way | None
) -> None:
    run = begun(world)
    before, keys = hashes(world, run), samples(world, run, seen)
    execute(world, keys, ways={} if chosen is None else {"p": chosen})
    after, champion = hashes(world, run), state_of(world, run)[1].champion
    assert {before[each] for each in seen}.isdisjoint(after.values())
    assert {trigger: model for trigger, model in after.items() if trigger not in seen} == {
        trigger: model for trigger, model in before.items() if trigger not in seen
    }
    if CHAMPION not in seen or chosen in ("retrain", None):
        assert champion == CHAMPION
    else:
        assert champion not in (None, CHAMPION)
    for trigger in after:
        assert not np.isin(samples_of(world, run, trigger), keys).any()
    consistent(world, run)
