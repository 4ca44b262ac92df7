"""Isolation of damage: one damaged, missing or changing model affects no other, and errors name it."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.errors import CorruptFile
from modyn_dagster.model_store import ModelStore, Provenance, Snapshot
from modyn_dagster.model_store.backends.folder import LocalFolder
from modyn_dagster.model_store.format.metadata import ModelMetadata
from modyn_dagster.model_store.format.model_file import StoredModel
from modyn_dagster.model_store.format.record import Record
from modyn_dagster.model_store.info import tree_of
from tests.examples import examples
from tests.model_store.lineages import moved, network
from tests.model_store.states import assert_exact, flipped_bit

RECIPE = Provenance(train="tests.model_store.trainings:train")


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "models")


def documents_of(store: ModelStore) -> list[Path]:
    return [path for path in (store.root / "documents").rglob("*") if path.is_file()]


def test_a_model_whose_base_is_gone_hides_no_other_damage(store):
    base = store.save({"a": torch.ones(3)})
    child = store.save({"a": torch.ones(4)}, base=base, strategy="provenance", provenance=RECIPE)
    other = store.save(network())
    store.info(other).path.write_bytes(b"damaged")
    store.info(base).path.unlink()
    damage = store.verify()
    assert {Path(each.path).stem for each in damage} == {child, other}
    with pytest.raises(CorruptFile, match=f"expected model {base}, which its training starts from, found no model of that id"):
        store.load(child, retrain=True)


@pytest.mark.parametrize("leads_to", ["nowhere", "/proc/self/mem"])
def test_a_file_that_cannot_be_read_hides_no_other_model(store, leads_to):
    model = store.save(network())
    unreadable = store.root / "ab" / f"ab{'0' * 62}.pack"
    unreadable.parent.mkdir()
    unreadable.symlink_to(leads_to)
    [damage] = store.verify()
    assert unreadable.stem in str(damage)
    assert store.tree() == {None: [model]}
    store.gc()
    assert store.environment(model) is not None
    if leads_to != "nowhere":
        # Perhaps it needs this one, and can be read again tomorrow.
        with pytest.raises(CorruptFile, match="expected a file that can be read"):
            store.delete(model, rebase=True)
    assert_exact(store.load(model), network())


@settings(max_examples=examples(20))
@given(st.data())
def test_a_flipped_bit_in_a_document_is_found_and_put_right_by_the_next_save(data):
    with tempfile.TemporaryDirectory() as root:
        store = ModelStore(Path(root))
        model = store.save({"a": torch.ones(3)}, model="tests.model_store.trainings:network")
        path = data.draw(st.sampled_from(sorted(documents_of(store))))
        content = path.read_bytes()
        path.write_bytes(flipped_bit(content, data.draw(st.integers(0, 8 * len(content) - 1))))
        assert [damage.path for damage in store.verify()] == [str(path)]
        store.save({"a": torch.ones(4)}, model="tests.model_store.trainings:network")
        assert store.verify() == []
        path.unlink()
        assert len(store.verify(model)) == 1


def test_who_loads_while_the_base_goes_waits_and_reads_what_is_stored_instead(store, monkeypatch):
    first = network()
    base = store.save(first, strategy="snapshot")
    second = moved(first, 1)
    model = store.save(second, base=base, strategy=Snapshot(compress=True))
    child = store.save(moved(second, 2), base=model, strategy="delta")
    waiting, go = Event(), Event()
    opened = LocalFolder.open

    def slow(folder: LocalFolder, path: Path) -> object:
        file = opened(folder, path)
        if path.stem == child and not waiting.is_set():
            waiting.set()
            # As long as a remover would need, were it let in now.
            go.wait(0.3)
        return file

    monkeypatch.setattr(LocalFolder, "open", slow)
    with ThreadPoolExecutor(2) as pool:
        loaded = pool.submit(store.load, child)
        assert waiting.wait(20)
        removed = pool.submit(ModelStore(store.root).delete, model, rebase=True)
        assert_exact(loaded.result(60), moved(second, 2))
        removed.result(60)
    assert_exact(store.load(child), moved(second, 2))
    assert store.verify() == []


@given(st.lists(st.integers(-1, 8), min_size=1, max_size=8))
def test_every_model_is_in_the_tree_once_whatever_the_files_say_of_their_bases(bases):
    models = [f"{n:064x}" for n in range(9)]
    stored = [
        StoredModel(model, Path(), 0, Record((), {}, {}), {}, ModelMetadata("delta", base=models[base] if base >= 0 else None))
        for model, base in zip(models, bases, strict=False)
    ]
    tree = tree_of(stored)
    waiting, seen = list(tree[None]), []
    while waiting:
        seen.append(waiting.pop())
        waiting += tree.get(seen[-1], ())
    assert sorted(seen) == models[: len(bases)]
    for parent, children in tree.items():
        assert list(children) == sorted(children)
        assert parent is None or all(models[bases[models.index(child)]] == parent for child in children)
