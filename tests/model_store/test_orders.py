"""Savers and removers of a store without locks: whatever they do in whatever order, and wherever one is killed, no model is
without what it needs.

Here all orders are run of two who meet, and some of three; ``test_killed.py`` kills one that is alone.
"""

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from modyn_dagster.errors import ModelInUse, UnknownModel
from modyn_dagster.model_store import Delta, ModelStore, Provenance, Snapshot
from modyn_dagster.reproducibility.randomness import rng_for
from tests.examples import examples
from tests.model_store.interleaving import Actor, Killed, orders
from tests.model_store.lineages import SMALL, three_savers
from tests.model_store.states import assert_exact
from tests.variants import represented

pytestmark = pytest.mark.usefixtures("nobody_waits")

Use = Callable[..., object]


def lineage(store: ModelStore, n: int) -> list[str]:
    """Models that each need the one before."""
    ids: list[str] = []
    for state in SMALL[:n]:
        strategy = Delta(max_depth=3) if ids else Snapshot(compress=False)
        ids.append(store.save(state, base=ids[-1] if ids else None, strategy=strategy))
    return ids


def explored(n_models: int, uses: Sequence[Use], fatal: Sequence[int | None] = (), some: int = 0) -> list[list[Any]]:
    """Errors of all actors in every order, after a look that all is sound then; ``fatal``: writes before each is killed."""
    url = f"memory://models/{uuid.uuid4().hex}"
    store = ModelStore(url)
    ids = lineage(store, n_models)
    before = dict(MemoryFileSystem.store)
    kills = [*fatal, *[None] * (len(uses) - len(fatal))]

    def start() -> list[Actor]:
        MemoryFileSystem.store.clear()
        MemoryFileSystem.store.update(before)
        return [Actor(url, use, ids, kill) for use, kill in zip(uses, kills, strict=True)]

    ends = []
    for actors in orders(start, rng_for(0, "orders"), some):
        errors = [actor.error for actor in actors]
        assert store.verify() == [], errors
        assert all(isinstance(error, Killed | ModelInUse | UnknownModel | None) for error in errors), errors
        ends.append(errors)
    return ends


def saving(strategy: str, n: int = 3, **more: Any) -> Use:
    """Save a model that derives from the newest one."""
    return lambda store, *ids: store.save(SMALL[n], base=ids[-1], strategy=strategy, **more)


def deleting(place: int = -1, rebase: bool = True) -> Use:
    return lambda store, *ids: store.delete(ids[place], rebase=rebase)


RECIPE = Provenance(train="tests.model_store.trainings:train")
SAVERS = {
    "changed_layers": saving("changed_layers"),
    "delta": saving("delta"),
    "provenance": saving("provenance", provenance=RECIPE),
}


@pytest.mark.long
@represented("saver", SAVERS, "laws-models", "delta")
@pytest.mark.parametrize("rebase", [True, False])
def test_no_order_of_a_saver_and_a_remover_leaves_a_model_without_its_base(saver, rebase):
    ends = explored(1, [saver, deleting(rebase=rebase)])
    assert len(ends) > 20
    kinds = {tuple(type(error) for error in errors) for errors in ends}
    # The remover sees the saver; the saver sees the remover, or nothing left of the base.
    assert {(type(None), ModelInUse), (UnknownModel, type(None))} <= kinds


KILLED_SAVERS = [(f"a saver by {name}", 1, [saver, deleting()], 0, n, 0) for name, saver in SAVERS.items() for n in range(3)]
KILLED_REMOVERS = [
    (f"a remover of one of {n_models}", n_models, [saving("delta"), deleting(0)], 1, n, examples(10))
    for n_models in (1, 2)
    for n in range(4)
]
KILLS = [
    pytest.param(*rest, n, some, id=f"{name} after {n} writes", marks=[pytest.mark.soak("laws-models")] * (n != 1))
    for name, *rest, n, some in KILLED_SAVERS + KILLED_REMOVERS
]


@pytest.mark.long
@pytest.mark.law
@pytest.mark.parametrize(("n_models", "uses", "who", "n_writes", "some"), KILLS)
def test_nor_does_one_that_is_killed_anywhere(n_models, uses, who, n_writes, some):
    ends = explored(n_models, uses, [None] * who + [n_writes], some)
    assert any(isinstance(errors[who], Killed) for errors in ends)


@pytest.mark.long
@pytest.mark.law
@pytest.mark.parametrize(
    ("n_models", "uses"),
    [
        (1, [saving("delta"), deleting(), deleting(rebase=False)]),
        (2, [saving("delta"), deleting(0), deleting(1)]),
        (3, [deleting(0), deleting(1)]),
        (2, [saving("delta"), deleting(), lambda store, first, second: store.save(SMALL[1], base=first, strategy=Snapshot())]),
        (2, [saving("delta"), saving("changed_layers", 2), deleting()]),
    ],
    ids=["two-of-one", "two-of-a-chain", "without-saver", "base-again", "two-savers"],
)
def test_nor_do_three_who_meet(n_models, uses):
    explored(n_models, uses, some=examples(10))


def test_who_saves_a_model_that_is_being_removed_saves_it():
    ends = explored(1, [lambda store, first: store.save(SMALL[0], strategy=Snapshot()), deleting()])
    assert all(errors == [None, None] for errors in ends)


@pytest.mark.long
@pytest.mark.law
def test_nor_does_a_third_who_relies_on_one_of_two_savers_of_one_model(memory_url):
    store = ModelStore(memory_url)
    saves = three_savers(store)
    before = dict(MemoryFileSystem.store)

    def use(store: ModelStore, place: int) -> str:
        return store.save(saves[place][0], base=saves[place][1], strategy="changed_layers")

    def start() -> list[Actor]:
        MemoryFileSystem.store.clear()
        MemoryFileSystem.store.update(before)
        return [Actor(memory_url, use, [place]) for place in range(3)]

    for actors in orders(start, rng_for(1, "orders"), some=examples(10)):
        assert store.verify() == [], [actor.error for actor in actors]


def test_two_savers_of_one_model_in_different_kinds_of_file_never_lose_it(memory_url):
    def use(store: ModelStore, compress: bool) -> str:
        return store.save(SMALL[0], strategy=Snapshot(compress=compress))

    def start() -> list[Actor]:
        MemoryFileSystem.store.clear()
        return [Actor(memory_url, use, [compress]) for compress in (False, True)]

    store, n_orders = ModelStore(memory_url), 0
    for actors in orders(start, rng_for(2, "orders"), some=0):
        n_orders += 1
        assert [actor.error for actor in actors] == [None, None]
        [model] = store.list()
        assert_exact(store.load(model), SMALL[0])
    assert n_orders > 5
