"""Deletion never breaks another model: it is refused, or the others are stored again without the removed one."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.errors import ModelInUse, UnknownModel
from modyn_dagster.model_store import Delta, ModelStore, Snapshot
from tests.examples import examples
from tests.model_store.lineages import lineages, moved, network
from tests.model_store.states import assert_exact
from tests.model_store.test_strategies import depth_of


def test_a_base_that_is_needed_is_refused_and_stays(tmp_path):
    store = ModelStore(tmp_path)
    base = store.save(network())
    child = store.save(moved(network(), 1), base=base, strategy="delta")
    with pytest.raises(ModelInUse, match="pass rebase=True") as caught:
        store.delete(base)
    assert caught.value.children == [child]
    assert store.verify() == []
    store.delete(child)
    store.delete(base)
    assert store.list() == []


def test_children_become_differences_to_the_first_of_them(tmp_path):
    store, first = ModelStore(tmp_path), network()
    base = store.save(first, strategy="snapshot")
    states = [moved(first, n) for n in range(4)]
    children = [store.save(state, base=base, strategy="delta") for state in states]
    store.delete(base, rebase=True)
    with pytest.raises(UnknownModel):
        store.load(base)
    needs = [store.info(child).needs for child in sorted(children)]
    assert needs == [(), *[(min(children),)] * 3]
    assert store.size(sorted(children)[1]) < 0.6 * store.info(children[0]).full_bytes
    for child, state in zip(children, states, strict=True):
        assert_exact(store.load(child), state)


def test_a_grandchild_that_refers_through_a_child_survives(tmp_path):
    store, first = ModelStore(tmp_path), network()
    base = store.save(first, strategy=Snapshot(compress=True))
    deep = Delta(max_depth=4, full_model_interval=None)
    second = moved(first, 1)
    child = store.save(second, base=base, strategy=deep)
    third = moved(second, 2, only="layers.1")
    grandchild = store.save(third, base=child, strategy=deep)
    store.delete(base, rebase=True)
    assert_exact(store.load(child), second)
    assert_exact(store.load(grandchild), third)
    store.delete(child, rebase=True)
    assert_exact(store.load(grandchild), third)
    assert store.verify() == []


def test_rebasing_makes_no_difference_one_to_a_difference(tmp_path):
    store = ModelStore(tmp_path)
    first = network()
    keyframe = store.save(first, strategy="snapshot")
    second = moved(first, 1, only="layers.1")
    gone = store.save(second, base=keyframe, strategy="changed_layers")
    third = moved(second, 2, only="layers.0.weight")
    child = store.save(third, base=gone, strategy="changed_layers")
    # Needs the child alone, not what goes.
    last = {"layers.0.weight": moved(third, 3)["layers.0.weight"]}
    grandchild = store.save(last, base=child, strategy=Delta(max_depth=1))
    store.delete(gone, rebase=True)
    assert max(depth_of(store, model) for model in store.list()) == 1
    assert_exact(store.load(child), third)
    assert_exact(store.load(grandchild), last)


@settings(max_examples=examples(40))
@given(lineages(), st.randoms(use_true_random=False))
def test_whatever_is_deleted_the_others_come_back(lineage, random):
    with tempfile.TemporaryDirectory() as root:
        store, base, saved = ModelStore(Path(root)), None, {}
        for state, strategy in lineage:
            base = store.save(state, base=base, strategy=strategy)
            saved[base] = state
        order = list(saved)
        random.shuffle(order)
        for gone in order:
            store.delete(gone, rebase=True)
            del saved[gone]
            for model, state in saved.items():
                assert_exact(store.load(model), state)
        assert store.list() == []


def test_a_damaged_model_can_be_deleted_when_nobody_needs_it(tmp_path):
    store = ModelStore(tmp_path)
    model = store.save(network())
    store.info(model).path.write_bytes(b"nothing")
    store.delete(model)
    assert store.list() == []


def test_models_that_nobody_else_needs_go_together_and_bases_of_others_stay(tmp_path):
    store, first = ModelStore(tmp_path), network()
    base = store.save(first, strategy="snapshot")
    children = [store.save(moved(first, n), base=base, strategy="delta") for n in (1, 2)]
    single = store.save(network(7), strategy="snapshot")
    assert store.needs(children) == {base}
    assert store.delete_unneeded([base, children[0], single, "f" * 64]) == [base]
    assert store.list() == sorted([base, children[1]])
    assert store.delete_unneeded([base, children[1]]) == []
    assert store.list() == []


@settings(max_examples=examples(40))
@given(lineages(), st.data())
def test_whatever_is_not_needed_goes_and_the_others_come_back(lineage, data):
    with tempfile.TemporaryDirectory() as root:
        store, base, saved = ModelStore(Path(root)), None, {}
        for state, strategy in lineage:
            base = store.save(state, base=base, strategy=strategy)
            saved[base] = state
        chosen = data.draw(st.sets(st.sampled_from(sorted(saved))))
        needed = store.needs(saved.keys() - chosen)
        assert store.delete_unneeded(chosen) == sorted(chosen & needed)
        assert store.list() == sorted((saved.keys() - chosen) | (chosen & needed))
        for model in store.list():
            assert_exact(store.load(model), saved[model])
