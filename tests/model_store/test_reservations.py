"""Reservations of savers and removers of a store without locks, one case each; ``test_orders.py`` runs all orders."""

import threading
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import fsspec
import pytest
import torch

from modyn_dagster.errors import ModelInUse, UnknownModel, WriteFailed
from modyn_dagster.model_store import ModelStore, Snapshot
from modyn_dagster.model_store.backends.remote import RemoteFolder
from modyn_dagster.model_store.commit import removal
from tests.model_store.lineages import SMALL, three_savers

pytestmark = pytest.mark.usefixtures("nobody_waits")


@pytest.mark.parametrize("is_local", [True, False])
def test_of_two_savers_of_one_model_the_first_stays(tmp_path, memory_url, monkeypatch, is_local):
    """A third one may rely on it already."""
    root = tmp_path if is_local else memory_url
    store, another = ModelStore(root), ModelStore(root)
    saves = three_savers(store)
    folder: Any = store.repository.folder
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


def test_a_base_that_was_removed_and_stored_otherwise_is_seen(memory_url, monkeypatch):
    """The base is there again when the saver looks, but no longer holds the tensors that the saver found in it."""
    store, another = ModelStore(memory_url), ModelStore(memory_url)
    other = store.save(SMALL[0], strategy=Snapshot(compress=False))
    base = store.save(SMALL[1], strategy=Snapshot(compress=False))

    def store_otherwise() -> None:
        another.delete(base)
        assert another.save(SMALL[1], base=other, strategy="changed_layers") == base

    before_announcing(store, monkeypatch, store_otherwise)
    child = store.save(SMALL[2], base=base, strategy="changed_layers")
    assert "was removed" in store.info(child).reason
    assert store.verify() == []


def before_announcing(store: ModelStore, monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Have this done once, when the store has planned a file and is about to say so."""
    reservations: Any = store.repository.folder.reservations
    real = reservations.announce

    def late(*args: Any) -> Any:
        monkeypatch.setattr(reservations, "announce", real)
        do()
        return real(*args)

    monkeypatch.setattr(reservations, "announce", late)


def test_nobody_relies_on_a_model_that_somebody_is_about_to_put(memory_url):
    """The announced model may come with other tensors in its file."""
    store = ModelStore(memory_url)
    base = store.save(SMALL[0], strategy=Snapshot(compress=False))
    reservations = RemoteFolder(memory_url, {}).reservations
    reservation = reservations.announce(base, frozenset(["f" * 64]))
    child = store.save(SMALL[2], base=base, strategy="delta")
    assert store.info(child).needs == ()
    reservations.withdraw(reservation)
    other = store.save(SMALL[3], base=base, strategy="delta")
    assert store.info(other).needs != ()


@pytest.fixture
def chain(memory_url: str) -> tuple[ModelStore, list[str]]:
    """Each has all tensors of the one before and one more, which alone is in its file."""
    store = ModelStore(memory_url)
    state: dict[str, torch.Tensor] = {}
    ids: list[str] = []
    for name in "abc":
        state = state | {name: torch.full((4,), float(ord(name)))}
        ids.append(store.save(state, base=ids[-1] if ids else None, strategy="changed_layers"))
    assert store.info(ids[2]).needs == tuple(sorted(ids[:2]))
    return store, ids


def test_a_remover_leaves_alone_what_another_stored_anew(chain, monkeypatch):
    store, [first, second, third] = chain
    another = ModelStore(str(store.root))
    before_announcing(store, monkeypatch, lambda: another.delete(first, rebase=True))
    store.delete(second, rebase=True)
    assert f"stored again without {first}" in store.info(third).reason
    assert f"without {second}" not in store.info(third).reason
    assert store.list() == [third]
    assert store.verify() == []


def test_a_child_that_goes_meanwhile_leaves_no_notice(chain, monkeypatch):
    store, [_, second, third] = chain
    another = ModelStore(str(store.root))
    before_announcing(store, monkeypatch, lambda: another.delete(third))
    with pytest.raises(UnknownModel, match=third):
        store.delete(second, rebase=True)
    assert not store.repository.folder.files("coming")
    assert store.verify() == []


def test_what_one_remover_takes_back_another_still_says(memory_url):
    reservations = RemoteFolder(memory_url, {}).reservations
    with reservations.removal("a" * 64):
        with reservations.removal("a" * 64):
            assert reservations.removals() == {"a" * 64}
        assert reservations.removals() == {"a" * 64}
    assert reservations.removals() == frozenset()


def test_a_remover_waits_for_a_saver(memory_url, monkeypatch):
    monkeypatch.setattr(removal, "PATIENCE", 60.0)
    store = ModelStore(memory_url)
    base = store.save(SMALL[0])
    reservations = RemoteFolder(memory_url, {}).reservations
    reservation = reservations.announce("c" * 64, frozenset([base]))
    remover = threading.Thread(target=store.delete, args=(base,))
    remover.start()
    remover.join(0.3)
    assert remover.is_alive()
    assert reservations.removals() == {base}
    reservations.withdraw(reservation)
    remover.join(20)
    assert store.list() == []


def test_what_a_killed_saver_announced_counts_for_a_day_or_until_gc(memory_url, monkeypatch):
    store = ModelStore(memory_url)
    base = store.save(SMALL[0])
    reservation = RemoteFolder(memory_url, {}).reservations.announce("c" * 64, frozenset([base]))
    with pytest.raises(ModelInUse, match=f"{base} is needed by 1 others .{'c' * 64}.*being saved.*gc"):
        store.delete(base, rebase=True)
    assert store.verify() == [] == store.gc()
    assert store.gc(older_than=0) == [reservation]
    store.delete(base)
    again = store.save(SMALL[0])
    RemoteFolder(memory_url, {}).reservations.announce("c" * 64, frozenset([again]))
    monkeypatch.setattr(removal, "ABANDONED", 0.0)
    store.delete(again)
    assert store.list() == []


def test_who_is_not_answered_leaves_the_notice(memory_url, monkeypatch):
    """The request may still be obeyed."""
    store = ModelStore(memory_url)
    base = store.save(SMALL[0])
    folder: Any = store.repository.folder
    real = folder.put_file

    def unanswered(local: str, full: str, path: PurePath) -> None:
        if path.suffix == ".pack":
            raise WriteFailed(path, "no answer")
        real(local, full, path)

    monkeypatch.setattr(folder, "put_file", unanswered)
    with pytest.raises(WriteFailed):
        store.save(SMALL[1], base=base, strategy="delta")
    with pytest.raises(ModelInUse):
        ModelStore(memory_url).delete(base)


def test_notices_of_others_are_read_with_care(memory_url):
    """Names and contents that nobody of ours wrote, such as halves of files."""
    store = ModelStore(memory_url)
    base = store.save(SMALL[0])
    fs = fsspec.filesystem("memory")
    for name in ("coming/x", f"coming/{'c' * 64}.0", "going/x.y.z", f"going/.{base}.0.tmp"):
        fs.pipe_file(f"{store.root}/{name}", b"\xff\x00" + base[:-1].encode())
    child = store.save(SMALL[1], base=base, strategy="delta")
    assert store.info(child).needs == (base,)
    store.delete(base, rebase=True)
    assert store.list() == [child]
