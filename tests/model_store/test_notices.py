"""Savers and removers of a store without locks: whatever they do in whatever order, and wherever one is killed, no model is
without what it needs.

Here all orders are run of two who meet, and some of three; ``test_kill_remote.py`` kills processes.
"""

import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

import fsspec
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem

from modyn_dagster.errors import ModelInUse, UnknownModel, WriteFailed
from modyn_dagster.model_store import Delta, ModelStore, Provenance, Snapshot, removing
from modyn_dagster.model_store.remote import RemoteFolder
from modyn_dagster.randomness import rng_for
from tests.model_store.interleaving import Actor, Killed, orders

Use = Callable[..., object]

STATES = [{"a": torch.arange(4.0), "b": torch.full((3,), float(n))} for n in range(4)]


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch):
    """Who would wait for another finds out at once how that ends; the order in which the other went first is run, too."""
    monkeypatch.setattr(removing, "PATIENCE", 0.0)


@pytest.fixture
def url() -> str:
    return f"memory://models/{uuid.uuid4().hex}"


def lineage(store: ModelStore, n: int) -> list[str]:
    """Models that each need the one before."""
    ids: list[str] = []
    for state in STATES[:n]:
        strategy = Delta(max_depth=3) if ids else Snapshot(compress=False)
        ids.append(store.save(state, base=ids[-1] if ids else None, strategy=strategy))
    return ids


def explored(n_models: int, uses: Sequence[Use], fatal: Sequence[int | None] = (), some: int = 0) -> list[list[Any]]:
    """How they end in every order, after a look that all is sound then; ``fatal``: after how many writes they are killed."""
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
    """Of a model that derives from the newest one."""
    return lambda store, *ids: store.save(STATES[n], base=ids[-1], strategy=strategy, **more)


def deleting(place: int = -1, rebase: bool = True) -> Use:
    return lambda store, *ids: store.delete(ids[place], rebase=rebase)


RECIPE = Provenance(train="tests.model_store.trainings:train")
SAVERS = [saving("changed_layers"), saving("delta"), saving("provenance", provenance=RECIPE)]


@pytest.mark.parametrize("saver", SAVERS, ids=["changed_layers", "delta", "provenance"])
@pytest.mark.parametrize("rebase", [True, False])
def test_no_order_of_a_saver_and_a_remover_leaves_a_model_without_its_base(saver, rebase):
    ends = explored(1, [saver, deleting(rebase=rebase)])
    assert len(ends) > 20
    kinds = {tuple(type(error) for error in errors) for errors in ends}
    # The remover sees the saver; the saver sees the remover, or nothing left of the base.
    assert {(type(None), ModelInUse), (UnknownModel, type(None))} <= kinds


@pytest.mark.parametrize("saver", SAVERS[1:], ids=["delta", "provenance"])
def test_nor_does_a_saver_that_is_killed_anywhere(saver):
    for n_writes in range(4):
        ends = explored(1, [saver, deleting()], [n_writes])
        assert any(isinstance(errors[0], Killed) for errors in ends)


@pytest.mark.parametrize("n_models", [1, 2])
def test_nor_does_a_remover_that_is_killed_anywhere(n_models):
    for n_writes in range(4):
        ends = explored(n_models, [saving("delta"), deleting(0)], [None, n_writes], some=40)
        assert any(isinstance(errors[1], Killed) for errors in ends)


@pytest.mark.parametrize(
    ("n_models", "uses"),
    [
        (1, [saving("delta"), deleting(), deleting(rebase=False)]),
        (2, [saving("delta"), deleting(0), deleting(1)]),
        (3, [deleting(0), deleting(1)]),
        (2, [saving("delta"), deleting(), lambda store, first, second: store.save(STATES[1], base=first, strategy=Snapshot())]),
        (2, [saving("delta"), saving("changed_layers", 2), deleting()]),
    ],
    ids=["two-of-one", "two-of-a-chain", "without-saver", "base-again", "two-savers"],
)
def test_nor_do_three_who_meet(n_models, uses):
    explored(n_models, uses, some=30)


def test_who_saves_a_model_that_is_being_removed_saves_it(url):
    ends = explored(1, [lambda store, first: store.save(STATES[0], strategy=Snapshot()), deleting()])
    assert all(errors == [None, None] for errors in ends)


SHARED, OTHER = torch.arange(4.0), torch.arange(4.0) + 9


def three_savers(store: ModelStore) -> list[tuple[dict[str, torch.Tensor], str]]:
    """Two who save one model, as differences to two bases; and one who relies on tensors that only one of their files holds."""
    one = store.save({"a": SHARED, "b": torch.zeros(3)}, strategy=Snapshot(compress=False))
    other = store.save({"a": OTHER, "b": torch.ones(3)}, strategy=Snapshot(compress=False))
    model = {"a": SHARED, "b": torch.ones(3)}
    identity = ModelStore(f"memory://models/{uuid.uuid4().hex}").save(model)
    return [(model, one), (model, other), ({"a": SHARED, "b": torch.full((3,), 2.0)}, identity)]


@pytest.mark.parametrize("is_local", [True, False])
def test_of_two_savers_of_one_model_the_first_stays(tmp_path, url, monkeypatch, is_local):
    """A third one may rely on it already."""
    root = tmp_path if is_local else url
    store, another = ModelStore(root), ModelStore(root)
    saves = three_savers(store)
    folder: Any = store._shelf.folder
    real = folder.writing
    models: list[str] = []

    def late(path: PurePath) -> Any:
        if path.suffix == ".pack" and not models:
            models.extend(another.save(state, base=base, strategy="changed_layers") for state, base in saves[1:])
        return real(path)

    monkeypatch.setattr(folder, "writing", late)
    assert store.save(saves[0][0], base=saves[0][1], strategy="changed_layers") == models[0]
    assert store.info(models[0]).base == saves[1][1]
    assert store.info(models[1]).needs != ()
    assert store.verify() == []


def test_nor_does_a_third_who_relies_on_one_of_two_savers_of_one_model(url):
    store = ModelStore(url)
    saves = three_savers(store)
    before = dict(MemoryFileSystem.store)

    def use(store: ModelStore, place: int) -> str:
        return store.save(saves[place][0], base=saves[place][1], strategy="changed_layers")

    def start() -> list[Actor]:
        MemoryFileSystem.store.clear()
        MemoryFileSystem.store.update(before)
        return [Actor(url, use, [place]) for place in range(3)]

    for actors in orders(start, rng_for(1, "orders"), some=40):
        assert store.verify() == [], [actor.error for actor in actors]


def test_a_base_that_was_removed_and_stored_otherwise_is_seen(url, monkeypatch):
    """It is there again when the saver looks, but does not hold any more what the saver found in it."""
    store, another = ModelStore(url), ModelStore(url)
    other = store.save(STATES[0], strategy=Snapshot(compress=False))
    base = store.save(STATES[1], strategy=Snapshot(compress=False))
    notices = store._shelf.folder.notices
    assert notices is not None
    real = notices.announce

    def late(*args: Any) -> PurePath:
        another.delete(base)
        assert another.save(STATES[1], base=other, strategy="changed_layers") == base
        return real(*args)

    monkeypatch.setattr(notices, "announce", late)
    child = store.save(STATES[2], base=base, strategy="changed_layers")
    assert "was removed" in store.info(child).reason
    assert store.verify() == []


def test_what_one_remover_takes_back_another_still_says(url):
    notices = RemoteFolder(url, {}).notices
    with notices.removing("a" * 64):
        with notices.removing("a" * 64):
            assert notices.going() == {"a" * 64}
        assert notices.going() == {"a" * 64}
    assert notices.going() == frozenset()


def test_a_remover_waits_for_a_saver(url, monkeypatch):
    monkeypatch.setattr(removing, "PATIENCE", 60.0)
    store = ModelStore(url)
    base = store.save(STATES[0])
    notices = RemoteFolder(url, {}).notices
    notice = notices.announce("c" * 64, frozenset([base]))
    remover = threading.Thread(target=store.delete, args=(base,))
    remover.start()
    remover.join(0.3)
    assert remover.is_alive()
    assert notices.going() == {base}
    notices.withdraw(notice)
    remover.join(20)
    assert store.list() == []


def test_what_a_killed_saver_announced_counts_for_a_day_or_until_gc(url, monkeypatch):
    store = ModelStore(url)
    base = store.save(STATES[0])
    notice = RemoteFolder(url, {}).notices.announce("c" * 64, frozenset([base]))
    with pytest.raises(ModelInUse, match=f"{base} is needed by 1 others .{'c' * 64}.*being saved.*gc"):
        store.delete(base, rebase=True)
    assert store.verify() == [] == store.gc()
    assert store.gc(older_than=0) == [notice]
    store.delete(base)
    again = store.save(STATES[0])
    RemoteFolder(url, {}).notices.announce("c" * 64, frozenset([again]))
    monkeypatch.setattr(removing, "ABANDONED", 0.0)
    store.delete(again)
    assert store.list() == []


def test_who_is_not_answered_leaves_the_notice(url, monkeypatch):
    """The request may still be obeyed."""
    store = ModelStore(url)
    base = store.save(STATES[0])
    folder: Any = store._shelf.folder
    real = folder._put

    def unanswered(local: str, full: str, path: PurePath) -> None:
        if path.suffix == ".pack":
            raise WriteFailed(path, "no answer")
        real(local, full, path)

    monkeypatch.setattr(folder, "_put", unanswered)
    with pytest.raises(WriteFailed):
        store.save(STATES[1], base=base, strategy="delta")
    with pytest.raises(ModelInUse):
        ModelStore(url).delete(base)


def test_notices_of_others_are_read_with_care(url):
    """Names and contents that nobody of ours wrote, such as halves of files."""
    store = ModelStore(url)
    base = store.save(STATES[0])
    fs = fsspec.filesystem("memory")
    for name in ("coming/x", f"coming/{'c' * 64}.0", "going/x.y.z", f"going/.{base}.0.tmp"):
        fs.pipe_file(f"{store.root}/{name}", b"\xff\x00" + base[:-1].encode())
    child = store.save(STATES[1], base=base, strategy="delta")
    assert store.info(child).needs == (base,)
    store.delete(base, rebase=True)
    assert store.list() == [child]
