"""Memories: what they keep, against definitions written out item by item, and states that go on as they would have."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.selection.memory import CLIB, GSS, MIR, GDumb, Memory
from tests.examples import examples

MEMORIES: dict[str, Callable[[int, int], Memory]] = {
    "gdumb": GDumb,
    "clib": CLIB,
    "gss": lambda n, seed: GSS(n, seed, candidates=3),
    "mir": lambda n, seed: MIR(n, max(1, n // 2), seed),
}


def keys_of(*keys: int) -> np.ndarray:
    return np.array(keys, np.uint64)


def values_of(keys: np.ndarray, model: int) -> dict[str, np.ndarray]:
    """Losses, gradients and embeddings that depend on the key and the model alone."""
    rows = [np.random.default_rng([model, int(key)]).normal(size=7) for key in keys] or [np.empty(7)][:0]
    table = np.array(rows).reshape(-1, 7)
    return {"losses": table[:, 0] ** 2, "gradients": table[:, 1:4], "embeddings": table[:, 4:]}


def feed(memory: Memory, keys: np.ndarray, labels: np.ndarray, model: int | None) -> None:
    known: dict[str, Any] = {"labels": labels} if isinstance(memory, GDumb | CLIB) else {}
    if model is not None and memory.VALUES:
        needs = memory.needs(keys)
        np.testing.assert_array_equal(needs.keys, np.concatenate([memory.keys, keys]))
        found = values_of(needs.keys, model)
        known |= {"losses": found["losses"]} if "losses" in needs.values else {n: found[n] for n in ("gradients", "embeddings")}
    memory.update(keys, **known)


def streamed(memory: Memory, sizes: list[int], begin: int = 0, models: bool = True) -> None:
    """Batches of a stream; there is a model from the second one on, another one every two."""
    first = begin * 1_000
    for number, size in enumerate(sizes, start=begin):
        keys = np.arange(first, first + size, dtype=np.uint64)
        feed(memory, keys, (keys % np.uint64(7) % np.uint64(3)).astype(np.int64), number // 2 if models and number else None)
        if isinstance(memory, MIR) and number % 2:
            memory.learnt()
        first += 1_000


@settings(max_examples=examples(40))
@given(st.sampled_from(sorted(MEMORIES)), st.integers(1, 12), st.lists(st.integers(0, 20), max_size=6), st.integers(0, 9))
def test_a_memory_holds_items_of_the_stream_once_each_and_never_more_than_n(name, n, sizes, seed):
    memory = MEMORIES[name](n, seed)
    streamed(memory, sizes)
    seen = np.concatenate([keys_of(), *(np.arange(1_000 * i, 1_000 * i + size) for i, size in enumerate(sizes))])
    for found in (memory.keys, memory.sample()):
        assert np.isin(found, seen).all()
        assert len(np.unique(found)) == len(found)
    assert len(memory.keys) <= n


@settings(max_examples=examples(25))
@given(st.sampled_from(sorted(MEMORIES)), st.lists(st.integers(0, 20), min_size=2, max_size=6), st.integers(1, 5))
def test_a_memory_that_loads_a_state_goes_on_as_the_other_would(name, sizes, cut):
    whole = MEMORIES[name](6, 1)
    streamed(whole, sizes)
    first = MEMORIES[name](6, 1)
    streamed(first, sizes[:cut])
    second = MEMORIES[name](6, 2)
    second.load_state_dict(first.state_dict())
    streamed(second, sizes[cut:], begin=len(sizes[:cut]))
    assert second.state_dict() == whole.state_dict()
    np.testing.assert_array_equal(second.sample(), whole.sample())


@pytest.mark.parametrize("name", MEMORIES)
def test_what_is_forgotten_leaves_sample_and_state_for_good(name):
    memory = MEMORIES[name](8, 0)
    streamed(memory, [20, 20, 20, 20])
    gone = np.union1d(memory.keys[::2], memory.sample()[::2])
    assert len(gone) >= 4
    memory.forget(lambda keys: np.isin(keys, gone))
    assert not np.isin(memory.sample(), gone).any()
    assert not np.isin(memory.keys, gone).any()
    streamed(memory, [5, 5, 5], begin=4)
    assert not np.isin(memory.sample(), gone).any()
    assert memory.state_dict() == memory.state_dict()


@settings(max_examples=examples(60))
@given(st.integers(1, 15), st.lists(st.integers(0, 4), max_size=60), st.integers(0, 3))
def test_gdumb_is_the_published_algorithm_however_the_stream_is_cut(n, labels, seed):
    memory, parts = GDumb(n, seed), GDumb(n, seed)
    keys, classes = np.arange(len(labels), dtype=np.uint64), np.array(labels, np.int64)
    memory.update(keys, classes)
    for key, label in zip(keys, classes):
        before, seen = Counter(classes[parts.keys.astype(int)].tolist()), len(set(labels[: int(key) + 1]))
        was = set(parts.keys.tolist())
        parts.update(keys_of(int(key)), np.array([label]))
        now = set(parts.keys.tolist())
        if before[label] < n / seen:
            assert int(key) in now
            if len(was) == n:
                [left] = was - now
                assert before[labels[left]] == max(before.values())
        else:
            assert now == was
    np.testing.assert_array_equal(np.sort(memory.keys), np.sort(parts.keys))


def test_gdumb_evicts_any_of_the_largest_class_equally_often():
    left: Counter[int] = Counter()
    for seed in range(2_000):
        memory = GDumb(4, seed)
        memory.update(keys_of(0, 1, 2, 3), np.zeros(4, np.int64))
        memory.update(keys_of(9), np.ones(1, np.int64))
        left.update(set(range(4)) - set(memory.keys.tolist()))
    assert all(abs(count - 500) < 4 * (2_000 * 0.25 * 0.75) ** 0.5 for count in left.values())


def test_clib_gives_up_the_lowest_score_of_the_most_frequent_class():
    memory = CLIB(4, 0, momentum=0.5)
    labels = np.array([0, 0, 0, 1])
    memory.update(keys_of(1, 2, 3, 4), labels, losses=[1.0, 1.0, 1.0, 1.0])
    # Under the next model the losses fell by 0.9, 0.1, 0.5 and -1: scores are half of that.
    memory.update(keys_of(), np.empty(0, np.int64), losses=[0.1, 0.9, 0.5, 2.0])
    memory.update(keys_of(5), np.array([1]), losses=[0.1, 0.9, 0.5, 2.0, 0.7])
    assert sorted(memory.keys.tolist()) == [1, 3, 4, 5]
    memory.update(keys_of(6), np.array([2]), losses=[0.1, 0.5, 2.0, 0.7, 0.7])
    # Both classes hold two: the later one gives up one, and its scores are equal, since a new item begins at the mean.
    assert {1, 3, 6} < set(memory.keys.tolist())


@settings(max_examples=examples(40))
@given(st.integers(1, 12), st.lists(st.lists(st.integers(0, 3), max_size=15), max_size=5), st.integers(0, 3))
def test_clib_balances_classes_as_far_as_they_go(n, batches, seed):
    memory, begin, labels = CLIB(n, seed), 0, list[int]()
    for batch in batches:
        keys = np.arange(begin, begin + len(batch), dtype=np.uint64)
        feed(memory, keys, np.array(batch, np.int64), None)
        begin, labels = begin + len(batch), labels + batch
        counts = Counter(labels[key] for key in memory.keys.tolist())
        assert len(memory.keys) == min(n, begin)
        seen = Counter(labels)
        level = max(counts.values(), default=0)
        assert all(count in (level, level - 1) or count == seen[label] for label, count in counts.items() if len(batches) == 1)


def test_clib_learns_nothing_from_the_same_model():
    memory = CLIB(3, 0)
    memory.update(keys_of(1, 2), np.array([0, 1]), losses=[1.0, 2.0])
    memory.update(keys_of(), np.empty(0, np.int64), losses=[0.5, 2.0])
    once = memory.state_dict()["scores"]
    memory.update(keys_of(), np.empty(0, np.int64), losses=[0.5, 2.0])
    assert memory.state_dict()["scores"] == once == [pytest.approx(0.05), 0.0]


@pytest.mark.law
def test_gss_replaces_with_the_chance_of_its_scores():
    runs, replaced = examples(2_000), Counter[int]()
    # Two items at a right angle, and a new one that points away from both: cosines -0.6 and -0.8.
    gradients = np.array([[1.0, 0.0], [0.0, 1.0], [-0.6, -0.8]])
    for seed in range(runs):
        memory = GSS(2, seed, candidates=2)
        memory.update(keys_of(0, 1), gradients=gradients[:2])
        memory.update(keys_of(2), gradients=gradients)
        replaced.update({0, 1, 2} - set(memory.keys.tolist()))
    # Scores: 1 of the first, 1 + 0 of the second, 1 - 0.6 of the new one.
    for key in (0, 1):
        expected = 0.5 * (1 / 1.4)
        assert abs(replaced[key] / runs - expected) < 4 * (expected * (1 - expected) / runs) ** 0.5


def test_gss_refuses_what_is_like_something_it_has_once_it_is_full():
    memory = GSS(2, 0, candidates=2)
    memory.update(keys_of(0, 1), gradients=np.eye(2))
    memory.update(keys_of(2), gradients=[[1.0, 0.0], [0.0, 1.0], [0.1, -5.0]])
    assert memory.keys.tolist() == [0, 1]


def test_gss_compares_outer_products_by_their_factors():
    rng = np.random.default_rng(0)
    errors, embeddings = rng.normal(size=(30, 3)), rng.normal(size=(30, 4))
    whole, factored = GSS(8, 5), GSS(8, 5)
    for start in (0, 15):
        for memory, seen in ((whole, False), (factored, True)):
            rows = np.concatenate([memory.keys, np.arange(start, start + 15, dtype=np.uint64)]).astype(int)
            new = np.arange(start, start + 15, dtype=np.uint64)
            if seen:
                memory.update(new, gradients=errors[rows], embeddings=embeddings[rows])
            else:
                memory.update(new, gradients=np.einsum("md,me->mde", errors, embeddings)[rows].reshape(len(rows), -1))
    assert whole.keys.tolist() == factored.keys.tolist()


def test_mir_retrieves_what_a_step_on_the_new_data_hurts_most():
    rng = np.random.default_rng(3)
    points, labels = rng.normal(size=(60, 4)), rng.integers(0, 3, 60)
    weights = rng.normal(size=(4, 3))

    def losses(matrix: np.ndarray) -> Any:
        logits = points @ matrix
        return np.log(np.exp(logits).sum(1)) - logits[np.arange(60), labels]

    def errors() -> Any:
        powers = np.exp(points @ weights)
        return powers / powers.sum(1, keepdims=True) - np.eye(3)[labels]

    memory = MIR(40, 5, 0)
    memory.update(np.arange(40, dtype=np.uint64))
    assert sorted(memory.sample().tolist()) == list(range(40))
    memory.learnt()
    assert len(memory.sample()) == 0
    for new in (np.arange(40, 50), np.arange(50, 60)):
        rows = np.concatenate([memory.keys.astype(int), new])
        memory.update(new.astype(np.uint64), gradients=errors()[rows], embeddings=points[rows])
    step = points[40:].T @ errors()[40:] / 20
    increase = losses(weights - 1e-5 * step) - losses(weights)
    expected = [*range(40, 60), *np.argsort(-increase[:40])[:5].tolist()]
    assert sorted(memory.sample().tolist()) == sorted(expected)


def test_mir_remembers_uniformly_what_was_learnt():
    counts = np.zeros(20)
    for seed in range(1_500):
        memory = MIR(5, 5, seed)
        for start in (0, 10):
            memory.update(np.arange(start, start + 10, dtype=np.uint64))
            memory.learnt()
        counts[memory.keys.astype(int)] += 1
    assert (np.abs(counts / 1_500 - 0.25) < 4 * (0.25 * 0.75 / 1_500) ** 0.5).all()


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda: GDumb(0, 0), "n must be at least 1"),
        (lambda: CLIB(2, 0, momentum=1.0), "momentum"),
        (lambda: GSS(2, 0, candidates=0), "candidates"),
        (lambda: MIR(2, 3, 0), "k must lie between 1 and n = 2"),
        (lambda: GDumb(2, 0).update(keys_of(1, 2), np.array([0])), "one for each of 2 keys"),
        (lambda: GDumb(2, 0).update(keys_of(1), np.array([-1])), "classes from 0 on"),
        (lambda: GDumb(2, 0).update(keys_of(1), np.array([0]), elapsed=-1.0), "elapsed"),
        (lambda: GDumb(2, 0).update(np.array([[1]], np.uint64), np.array([0])), "keys must be uint64"),
        (lambda: GDumb(2, 0).update(np.array([-1]), np.array([0])), "keys must be uint64"),
        (lambda: CLIB(2, 0).update(keys_of(1), np.array([0]), losses=[1.0, 2.0]), "1 items that `needs` names"),
        (lambda: CLIB(2, 0).update(keys_of(1), np.array([0]), losses=[np.nan]), "losses must be finite"),
        (lambda: GSS(2, 0).update(keys_of(1), gradients=[1.0]), "gradients must belong"),
        (lambda: MIR(2, 1, 0).load_state_dict(GDumb(2, 0).state_dict()), "state of 'gdumb'"),
        (lambda: MIR(2, 1, 0).update(keys_of(2**64 - 1)), "below 2"),
    ],
)
def test_bad_input_is_a_value_error_that_names_it(call, rule):
    with pytest.raises(ValueError, match=rule):
        call()
