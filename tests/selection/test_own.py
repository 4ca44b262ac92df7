"""Laws of strategies of a user's own: what `check_strategy` finds, what a choice may be, and what becomes of it."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpath import TrainingSet
from modyn_dagster.errors import ChoiceRefused, ConfigError, ImportPathError, LawBroken, SelectionError
from modyn_dagster.reproducibility.randomness import hash_keys
from modyn_dagster.selection import History, Usage, write_training_set
from modyn_dagster.selection.conformance import check_strategy
from modyn_dagster.selection.own import Chosen, WindowSamples
from modyn_dagster.selection.own.choice import Origin, checked, partition_of
from modyn_dagster.selection.own.custom import custom_selection, custom_strategy
from modyn_dagster.selection.own.sql import smallest_hashes
from modyn_dagster.selection.partitions import inclusion_probabilities_of
from modyn_dagster.spec.selection import SelectionSpec
from modyn_dagster.spec.strategies.own import CustomStrategySpec
from tests.projects.user_code import tiny_strategies as own
from tests.selection.test_strategies import history_of, pool_of

CODE = own.__name__
ORIGIN = Origin("pipeline shop", "selection.strategy.factory", "shop.choice:mine")


def block(name: str, config: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"kind": "custom", "factory": f"{CODE}:{name}", "config": config or {}, **fields}


def select(strategy: dict[str, Any], n: int = 50, chunk: int = 7, partition_size: int = 10, limit: int | None = None) -> Any:
    pool = pool_of(n, chunk=chunk)
    backend = "postgres" if strategy.get("attributes") else "arrow"
    content = {"strategy": strategy, "partition_size": partition_size, "limit": limit, "backend": backend}
    spec = SelectionSpec.model_validate(content)
    assert isinstance(spec.strategy, CustomStrategySpec)
    history = history_of(pool)
    return custom_selection(spec, spec.strategy, pool, seed=5, trigger=3, history=history, origin=ORIGIN)


@pytest.mark.parametrize("make", [own.uniform, own.newest, own.of_every_class, own.least_used], ids=lambda make: make.__name__)
def test_good_strategies_pass(make: Callable[[], Any]) -> None:
    check_strategy(make)


def test_strategies_of_attributes_and_uses_pass() -> None:
    check_strategy(own.unused_of_place, {"place": "a"}, attributes={"label": ["a", "b", None]})


BROKEN = {
    "outside": "chosen samples are in the window",
    "twice": "a sample is chosen at most once",
    "too many": "a choice has at most the size asked for",
    "nan weight": "weights are finite and positive",
    "vanishing weight": "weights are finite and positive",
    "zero chance": "chances are above 0 and at most 1",
    "large chance": "chances are above 0 and at most 1",
    "lengths": "a choice has one key, and at most one weight and one chance, per sample",
    "mask": "a choice has one key, and at most one weight and one chance, per sample",
    "negative": "chosen samples are in the window",
    "list": "a choice has one key, and at most one weight and one chance, per sample",
    "writes": "the arrays of a window are not changed",
    "unlocks": "the arrays of a window are not changed",
    "global": "no global random state is used",
    "python": "no global random state is used",
    "key values": "other batches change no choice",
}


@pytest.mark.parametrize(("fault", "law"), BROKEN.items(), ids=BROKEN)
def test_each_broken_law_is_named(fault: str, law: str) -> None:
    with pytest.raises(LawBroken, match=re.escape(law)) as caught:
        check_strategy(own.bad, {"fault": fault})
    assert caught.value.law == law
    assert f"window {caught.value.stream!r}" in str(caught.value)


def test_torch_is_watched_too() -> None:
    import torch

    def drawing() -> Any:
        return lambda samples: Chosen(samples.keys[: int(torch.randint(0, samples.size + 1, (1,)))])

    with pytest.raises(LawBroken, match=r"no global random state is used.*torch"):
        check_strategy(drawing)


def test_a_strategy_with_a_state_does_not_agree_with_itself() -> None:
    with pytest.raises(LawBroken, match="equal seeds agree"):
        check_strategy(own.Counting)


def test_a_strategy_that_fails_is_named_with_its_error() -> None:
    with pytest.raises(SelectionError, match="failed: KeyError: 'nothing there'"):
        check_strategy(own.bad, {"fault": "raises"})


def test_nothing_chosen_is_nothing_checked() -> None:
    with pytest.raises(ConfigError, match="nothing was chosen"):
        check_strategy(lambda: lambda samples: Chosen(samples.keys[:0]))


def test_global_generators_go_on_as_before_the_check() -> None:
    np.random.seed(3)
    expected = np.random.random()
    np.random.seed(3)
    check_strategy(own.uniform)
    assert np.random.random() == expected


def test_chunks_and_partitions_change_nothing() -> None:
    expected = [(part.keys.tolist(), part.weights.tolist()) for part in select(block("uniform", ratio=0.5), partition_size=100)]
    for chunk in (1, 50):
        parts = list(select(block("uniform", ratio=0.5), chunk=chunk, partition_size=4))
        assert all(len(part.keys) == 4 for part in parts[:-1])
        assert [key for part in parts for key in part.keys.tolist()] == expected[0][0]
        assert [weight for part in parts for weight in part.weights.tolist()] == expected[0][1]


@pytest.mark.parametrize(("fields", "size"), [({"ratio": 0.29}, 14), ({"size": 20}, 20), ({}, 50)], ids=str)
def test_the_size_is_that_of_other_strategies(fields: dict[str, Any], size: int) -> None:
    assert sum(len(part.keys) for part in select(block("newest", **fields))) == size
    assert sum(len(part.keys) for part in select(block("newest", **fields), limit=9)) == 9


def test_attributes_and_uses_are_those_of_the_pool() -> None:
    pool = pool_of(50)
    history = history_of(pool)
    assert isinstance(history.used, Usage)
    uses = history.used.counts(pool.keys)
    expected = [int(key) for key, place, n in zip(pool.keys, pool.place, uses, strict=True) if place == "b" and n == 0]
    strategy = block("unused_of_place", {"place": "b"}, attributes=["label"], usage=True)
    found = select(strategy)
    assert [key for part in found for key in part.keys.tolist()] == expected
    assert not found.certified


def test_an_empty_window_is_not_chosen_from() -> None:
    found = select(block("bad", {"fault": "raises"}), n=0)
    assert (found.n_pool, list(found), found.certified) == (0, [], True)


def test_random_numbers_belong_to_seed_name_and_sample() -> None:
    keys = np.arange(1000, dtype=np.uint64)
    labels = np.zeros(1000, np.int64)
    samples = WindowSamples(keys.copy(), labels, labels, 5, 0, 7)
    part = WindowSamples(keys[100:200].copy(), labels[:100], labels[:100], 5, 0, 7)
    assert samples.random()[100:200].tolist() == part.random().tolist()
    assert samples.random("a").tolist() != samples.random("b").tolist()
    assert abs(samples.random().mean() - 0.5) < 0.05
    assert samples.random().min() >= 0
    assert samples.random().max() < 1
    with pytest.raises(ValueError, match="read-only"):
        samples.keys[0] = 1


@given(st.data())
def test_a_choice_is_accepted_exactly_if_it_obeys_the_laws(data: st.DataObject) -> None:
    pool = np.array(sorted(data.draw(st.sets(st.integers(0, 30), min_size=1))), np.uint64)
    inside = st.lists(st.sampled_from(pool.tolist()), max_size=12, unique=True)
    keys = data.draw(inside | st.lists(st.integers(0, 32), max_size=12))
    n, size = len(keys), data.draw(st.just(12) | st.integers(0, 12))
    good, bad = st.floats(0.1, 1.0), st.sampled_from([0.0, 1.0, 1.5, -1.0, np.nan, np.inf, -np.inf, 1e-60, 1e60])
    column = st.lists(good, min_size=n, max_size=n) | st.lists(good | bad, min_size=n, max_size=n)
    weights, chances = (data.draw(st.none() | column) for _ in range(2))
    with np.errstate(over="ignore"):
        stored = np.array(weights or [], np.float32)
    lawful = len(set(keys)) == n <= size and set(keys) <= set(pool.tolist())
    lawful &= bool(np.all(np.isfinite(stored) & (stored > 0))) and all(0 < chance <= 1 for chance in chances or [])
    chunk = data.draw(st.integers(1, 7))
    arrays = [None if column is None else np.array(column, float) for column in (weights, chances)]
    chosen = Chosen(np.array(keys, np.int64), *arrays)

    def chunks() -> list[np.ndarray]:
        return [pool[i : i + chunk] for i in range(0, len(pool), chunk)]

    if not lawful:
        with pytest.raises(ChoiceRefused, match=r"pipeline shop: selection\.strategy\.factory: "):
            checked(chosen, chunks, size, ORIGIN)
        return
    found = checked(chosen, chunks, size, ORIGIN)
    order = np.argsort(np.array(keys, np.int64))
    assert found.keys.tolist() == sorted(keys)
    part = partition_of(found, len(pool))
    told = inclusion_probabilities_of(part)
    if weights is not None:
        np.testing.assert_array_equal(part.weights, stored[order])
        assert (told is None) == (chances is None)
    elif chances is not None:
        assert told is None
        smallest = np.maximum(np.array(chances)[order], np.finfo(np.float32).tiny)
        np.testing.assert_allclose(part.weights, 1 / smallest, rtol=1e-6)
    else:
        np.testing.assert_allclose(part.weights, len(pool) / max(1, n), rtol=1e-6)


@pytest.mark.parametrize("weight", [np.inf, -np.inf, np.nan, 0.0, -1.0, 1e60, 1e-60])
def test_weights_that_a_training_set_cannot_hold_are_refused(weight: float) -> None:
    pool = np.arange(3, dtype=np.uint64)
    with pytest.raises(ChoiceRefused, match=r"weights are finite and positive: .*key 2 the weight"):
        checked(Chosen(pool, np.array([1.0, 2.0, weight])), lambda: [pool], 3, ORIGIN)


def test_weights_and_chances_follow_their_keys() -> None:
    pool = np.arange(9, dtype=np.uint64)
    chosen = Chosen(np.array([7, 2, 5]), np.array([70.0, 20.0, 50.0]), np.array([0.7, 0.2, 0.5]))
    found = checked(chosen, lambda: [pool[:4], pool[4:4], pool[4:]], 3, ORIGIN)
    assert found.weights is not None
    assert found.chances is not None
    assert (found.keys.tolist(), found.weights.tolist(), found.chances.tolist()) == ([2, 5, 7], [20, 50, 70], [0.2, 0.5, 0.7])


@given(st.sets(st.integers(0, 2**40), min_size=1, max_size=40), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_a_part_has_the_smallest_hashes_and_the_share_as_its_chance(keys: set[int], size: int, salt: int) -> None:
    ascending = np.array(sorted(keys), np.uint64)
    found = smallest_hashes(Chosen(ascending, chances=np.full(len(keys), 0.5)), size, salt)
    kept = min(size, len(keys))
    hashes = dict(zip(ascending.tolist(), hash_keys(ascending, salt).tolist(), strict=True))
    assert found.keys.tolist() == sorted(sorted(hashes, key=hashes.__getitem__)[:kept])
    assert found.chances is not None
    np.testing.assert_allclose(found.chances, 0.5 * kept / len(keys))


def test_chances_beside_weights_are_stored(tmp_path: Any) -> None:
    whole = partition_of(Chosen(np.arange(4, dtype=np.uint64), np.full(4, 3.0), np.full(4, 0.25)), 16)
    write_training_set(tmp_path / "set.arrow", [whole])
    found = TrainingSet.open(tmp_path / "set.arrow")
    assert found.weights().tolist() == [3.0] * 4
    chances = found.chances(0)
    assert chances is not None
    assert chances.tolist() == [0.25] * 4


def test_impossible_factories_are_named_with_their_field() -> None:
    for name, rule in (("nowhere", "cannot be imported"), ("no_strategy", "function of one argument")):
        with pytest.raises(ImportPathError, match=rf"pipeline shop: strategy\.factory.*{rule}"):
            custom_strategy(f"{CODE}:{name}", {}, source="pipeline shop")
    with pytest.raises(ConfigError, match=r"strategy\.config.*newest refused it: TypeError"):
        custom_strategy(f"{CODE}:newest", {"wieght": 1}, source="pipeline shop")


def test_attributes_and_statements_need_postgres() -> None:
    for strategy in (block("newest", attributes=["place"]), {"kind": "sql", "statement": f"{CODE}:ones"}):
        with pytest.raises(ValueError, match="set `backend: postgres`"):
            SelectionSpec.model_validate({"strategy": strategy})
        SelectionSpec.model_validate({"strategy": strategy, "backend": "postgres"})


def test_a_strategy_that_counts_uses_needs_the_earlier_sets() -> None:
    spec = SelectionSpec.model_validate({"strategy": block("newest", usage=True)})
    assert isinstance(spec.strategy, CustomStrategySpec)
    with pytest.raises(SelectionError, match="needs the earlier training sets"):
        custom_selection(spec, spec.strategy, pool_of(9), seed=0, trigger=0, history=History(), origin=ORIGIN)
