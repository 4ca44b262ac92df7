"""Laws of every strategy: exact sizes, one result for any chunks and partitions, and weights that keep sums."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fastpath import TrainingSet
from modyn_dagster.errors import BadScore, SelectionError
from modyn_dagster.keys import KeyArray
from modyn_dagster.reproducibility.randomness import hash_keys, seed_for
from modyn_dagster.selection import History, Partition, Selection, Usage
from modyn_dagster.selection.presampling.thresholds import thresholds
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.selection import SelectionSpec
from tests.examples import examples
from tests.projects.tiny import amount


@dataclass
class MemoryPool:
    """A pool in memory, in chunks of one size."""

    keys: KeyArray
    chunk: int = 7
    label: Sequence[int] = ()
    place: Sequence[str | None] = ()
    score: Sequence[float] = ()
    passes: int = field(default=0)

    def _cut(self, values: Any) -> Iterator[Any]:
        return (values[i : i + self.chunk] for i in range(0, len(self.keys), self.chunk))

    def __iter__(self) -> Iterator[KeyArray]:
        self.passes += 1
        return self._cut(self.keys)

    def labels(self) -> Iterator[tuple[KeyArray, npt.NDArray[np.int64]]]:
        return zip(self._cut(self.keys), self._cut(np.array(self.label, np.int64)), strict=True)

    def attribute(self, name: str) -> Iterator[tuple[KeyArray, Sequence[str | None]]]:
        return zip(self._cut(self.keys), self._cut(self.place), strict=True)

    def scores(self, attribute: str | None, expression: str | None) -> Iterator[tuple[KeyArray, npt.NDArray[np.float64]]]:
        return zip(self._cut(self.keys), self._cut(np.array(self.score, float)), strict=True)


STRATEGIES: dict[str, dict[str, Any]] = {
    "all": {"kind": "all"},
    "uniform": {"kind": "uniform"},
    "without replacement": {"kind": "uniform_without_replacement"},
    "labels": {"kind": "balanced", "by": "label", "filling": "exact"},
    "labels fair": {"kind": "balanced", "by": "label"},
    "labels equal": {"kind": "balanced", "by": "label", "filling": "equal"},
    "triggers": {"kind": "balanced", "by": "trigger", "filling": "exact"},
    "attribute": {"kind": "balanced", "by": {"attribute": "place"}, "filling": "exact"},
    "freshness": {"kind": "freshness", "unused": 0.8},
    "weighted": {"kind": "weighted", "attribute": "score"},
}
EXACT = sorted(set(STRATEGIES) - {"labels fair", "labels equal"})


def pool_of(n: int, seed: int = 0, chunk: int = 7) -> MemoryPool:
    rng = np.random.default_rng(seed)
    keys = np.sort(rng.choice(10 * n + 1, n, replace=False)).astype(np.uint64) + np.uint64(3 << 32)
    label = rng.choice([0, 0, 0, 0, 1, 1, 5], n)
    place = [(None, "a", "b", "b")[i] for i in rng.integers(0, 4, n)]
    return MemoryPool(keys, chunk, label.tolist(), place, rng.exponential(size=n).tolist())


def history_of(pool: MemoryPool) -> History:
    """Two earlier triggers in the window, and two earlier training sets of which one key is in both."""
    sets = [TrainingSet.of(pool.keys[::4].copy()), TrainingSet.of(pool.keys[2::6].copy())]
    ends = [int(pool.keys[len(pool.keys) // 3]), int(pool.keys[len(pool.keys) // 2])] if len(pool.keys) else []
    return History(ends, Usage(sets))


def select(pool: MemoryPool, strategy: dict[str, Any], seed: int = 0, **fields: Any) -> tuple[Selection, Partition]:
    spec = SelectionSpec.model_validate({"strategy": strategy, "backend": "postgres", **fields})
    selection = Selection(spec, pool, seed=seed, trigger=0, history=history_of(pool))
    parts = list(selection)
    assert all(len(part.keys) == spec.partition_size for part in parts[:-1])
    keys = np.concatenate([np.empty(0, np.uint64), *(part.keys for part in parts)])
    weights = np.concatenate([np.empty(0, np.float32), *(part.weights for part in parts)])
    return selection, Partition(keys, weights)


def sized(name: str, **size: Any) -> dict[str, Any]:
    return STRATEGIES[name] if name == "all" else {**STRATEGIES[name], **size}


@settings(max_examples=examples(150))
@given(st.sampled_from(sorted(STRATEGIES)), st.integers(0, 90), st.integers(1, 60), st.data(), st.integers(0, 4))
def test_the_result_depends_neither_on_chunks_nor_on_partitions(name, n, size, data, seed):
    strategy = sized(name, size=size)
    found = []
    for chunk in (200, data.draw(st.integers(1, 30))):
        pool = pool_of(n, seed, chunk if name != "weighted" else 7)
        found.append(select(pool, strategy, seed, partition_size=data.draw(st.integers(1, 50)))[1])
    np.testing.assert_array_equal(found[0].keys, found[1].keys)
    np.testing.assert_array_equal(found[0].weights, found[1].weights)
    assert (np.diff(found[0].keys.astype(np.int64)) > 0).all()
    assert np.isin(found[0].keys, pool_of(n, seed).keys).all()


@settings(max_examples=examples(100))
@given(st.sampled_from(EXACT), st.integers(0, 90), st.integers(1, 100), st.none() | st.integers(1, 100), st.integers(0, 4))
def test_sizes_are_exact_and_the_limit_holds_for_the_whole_set(name, n, size, limit, seed):
    selection, found = select(pool_of(n, seed), sized(name, size=size), seed, limit=limit, partition_size=9)
    wanted = min(n, size if name != "all" else n, limit or n)
    assert selection.n_pool == n
    assert len(found.keys) == wanted


@pytest.mark.parametrize("name", ["uniform", "labels", "weighted", "freshness"])
@pytest.mark.parametrize(("ratio", "n", "size"), [(0.5, 31, 15), (0.29, 100, 29), (0.001, 50, 1), (1.0, 40, 40)])
def test_a_ratio_is_rounded_down_but_never_to_nothing(name, ratio, n, size):
    assert len(select(pool_of(n), sized(name, ratio=ratio))[1].keys) == size


@settings(max_examples=examples(100))
@given(st.sampled_from(sorted(STRATEGIES)), st.integers(1, 90), st.integers(1, 60), st.integers(0, 4))
def test_equal_weights_add_up_to_the_pool(name, n, size, seed):
    strategy = sized(name, size=size)
    if name in ("labels", "labels fair", "labels equal", "triggers", "attribute", "freshness", "weighted"):
        strategy["weights"] = "equal"
    _, found = select(pool_of(n, seed), strategy, seed)
    if len(found.keys):
        assert found.weights.sum() == pytest.approx(n, rel=1e-4)
        assert len(np.unique(found.weights)) == 1


@pytest.mark.law
@pytest.mark.parametrize("name", ["uniform", "labels", "triggers", "attribute", "freshness", "weighted"])
def test_weighted_sums_are_those_of_the_pool(name):
    n, runs = 60, examples(750)
    pool = pool_of(n, 3)
    values = np.random.default_rng(5).normal(size=n) + np.arange(n) / 10
    estimates = []
    for seed in range(runs):
        _, found = select(pool, sized(name, size=20), seed)
        estimates.append(found.weights @ values[np.searchsorted(pool.keys, found.keys)])
    assert abs(np.mean(estimates) - values.sum()) < 4 * np.std(estimates) / runs**0.5


def test_what_is_chosen_of_a_group_are_its_smallest_hashes():
    pool = pool_of(80, 1)
    _, found = select(pool, STRATEGIES["labels"] | {"size": 30}, 9)
    hashes = hash_keys(pool.keys, seed_for(9, "limit", 0))
    expected = []
    for label in (0, 1, 5):
        mine = np.flatnonzero(np.array(pool.label) == label)
        n_mine = int(np.isin(found.keys, pool.keys[mine]).sum())
        expected += mine[np.argsort(hashes[mine])][:n_mine].tolist()
    np.testing.assert_array_equal(found.keys, np.sort(pool.keys[expected]))


@settings(max_examples=examples(60))
@given(st.integers(1, 300), st.data())
def test_thresholds_are_found_where_hashes_are_not_where_they_are_expected(n, data):
    keys = np.arange(200_000, dtype=np.uint64)
    small = keys[hash_keys(keys, 1) < np.uint64(2**58)][:n]
    quota = data.draw(st.integers(0, len(small)))
    groups = np.zeros(len(small), np.int64)
    found = thresholds(lambda: [(small, groups)], np.array([len(small)]), np.array([quota]), 1)
    order = np.argsort(hash_keys(small, 1))[:quota]
    np.testing.assert_array_equal(np.flatnonzero(found.chosen(small, groups)), np.sort(order))


def test_a_pool_that_shrinks_between_two_passes_is_an_error():
    keys = np.arange(100, dtype=np.uint64)
    with pytest.raises(SelectionError, match="changed while"):
        thresholds(lambda: [(keys[:10], None)], np.array([100]), np.array([50]), 0)


def test_everything_is_read_in_one_pass():
    pool = pool_of(50)
    assert len(select(pool, {"kind": "all"})[1].keys) == 50
    assert pool.passes == 1


def test_labels_are_balanced_by_water_filling():
    label = [0] * 100 + [1] * 5 + [2] * 40
    pool = MemoryPool(np.arange(145, dtype=np.uint64), 20, label)
    for filling, expected in {"fair": [27, 5, 27], "exact": [28, 5, 27], "equal": [5, 5, 5]}.items():
        _, found = select(pool, {"kind": "balanced", "filling": filling, "size": 60})
        assert np.bincount(np.array(label)[found.keys.astype(int)]).tolist() == expected


def test_triggers_of_the_window_are_balanced():
    pool = pool_of(90)
    _, found = select(pool, STRATEGIES["triggers"] | {"size": 30})
    stretch = np.searchsorted(np.array(history_of(pool).ends, np.uint64), found.keys)
    assert np.bincount(stretch).tolist() == [10, 10, 10]


def test_without_replacement_every_sample_is_used_once_before_any_is_used_again():
    keys = np.arange(100, dtype=np.uint64)
    spec = SelectionSpec.model_validate({"window": "all", "strategy": {"kind": "uniform_without_replacement", "size": 30}})
    sets: list[TrainingSet] = []
    for trigger in range(10):
        chosen = Selection(spec, [keys], seed=1, trigger=trigger, history=History((), Usage(sets)))
        sets.append(TrainingSet.of(np.concatenate([part.keys for part in chosen])))
        uses = np.bincount(np.concatenate([one.keys() for one in sets]).astype(int), minlength=100)
        assert uses.max() - uses.min() <= 1
    assert uses.tolist() == [3] * 100


def test_freshness_takes_its_share_of_what_was_never_used():
    pool = pool_of(90)
    used = np.union1d(pool.keys[::4], pool.keys[2::6])
    _, found = select(pool, {"kind": "freshness", "unused": 0.8, "size": 20})
    assert int(np.isin(found.keys, used).sum()) == 4
    _, found = select(pool, {"kind": "freshness", "unused": 1.0, "size": 85})
    assert int((~np.isin(found.keys, used)).sum()) == 90 - len(used)


def test_usage_counts_the_sets_that_hold_a_key_in_any_number_of_passes():
    keys = np.arange(0, 400, 2, dtype=np.uint64)
    usage = Usage([TrainingSet.of(keys[::3].copy()), TrainingSet.of(keys[:0]), TrainingSet.of(keys[::2].copy())])
    expected = (np.arange(200) % 3 == 0).astype(int) + (np.arange(200) % 2 == 0)
    for size in (7, 200, 1):
        found = [usage.counts(keys[i : i + size]) for i in range(0, 200, size)]
        np.testing.assert_array_equal(np.concatenate(found), expected)


@pytest.mark.law
def test_chances_are_in_proportion_to_scores_and_large_ones_are_certain():
    scores = [0.0, 1.0, 1.0, 2.0, 3.0, 1e6]
    pool = MemoryPool(np.arange(6, dtype=np.uint64), 4, score=scores)
    runs = examples(2_000)
    drawn = [select(pool, {"kind": "weighted", "attribute": "score", "size": 3}, seed)[1] for seed in range(runs)]
    keys = np.concatenate([found.keys for found in drawn]).astype(int)
    expected = np.array([0, 2 / 7, 2 / 7, 4 / 7, 6 / 7, 1])
    np.testing.assert_allclose(1 / np.concatenate([found.weights for found in drawn]), expected[keys], rtol=1e-6)
    counts = np.bincount(keys, minlength=6)
    assert (np.abs(counts / runs - expected) <= 4 * np.sqrt(expected * (1 - expected) / runs)).all()


@settings(max_examples=examples(100))
@given(st.lists(st.sampled_from([0.0, 0.1, 1.0, 1.0, 7.0, 1e9, 1e-9]), max_size=40), st.integers(1, 40), st.integers(0, 9))
def test_weighted_samples_have_the_size_that_scores_allow(scores, size, seed):
    pool = MemoryPool(np.arange(len(scores), dtype=np.uint64), 6, score=scores)
    _, found = select(pool, {"kind": "weighted", "attribute": "score", "size": size}, seed)
    assert len(found.keys) == min(size, sum(score > 0 for score in scores))


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_a_score_that_is_none_names_its_key(bad):
    pool = MemoryPool(np.array([4, 9, 11], np.uint64), 2, score=[1.0, 2.0, bad])
    with pytest.raises(BadScore, match="key 11"):
        select(pool, {"kind": "weighted", "attribute": "score", "size": 1})


def test_warm_up_and_schedule_switch_at_their_triggers():
    spec = SelectionSpec.model_validate(
        {
            "strategy": {"kind": "uniform", "size": 30},
            "warmup_triggers": 2,
            "schedule": [
                {"from_trigger": 3, "strategy": {"kind": "uniform", "size": 20}},
                {"from_trigger": 5, "strategy": {"kind": "all"}},
            ],
            "limit": 40,
        }
    )
    pool = pool_of(50)
    sizes = [sum(len(part.keys) for part in Selection(spec, pool, seed=0, trigger=t)) for t in range(7)]
    assert sizes == [40, 40, 30, 20, 20, 40, 40]


def test_keys_alone_do_for_strategies_that_look_at_nothing_else():
    keys = [np.arange(9, dtype=np.uint64)]
    with pytest.raises(SelectionError, match="only keys were given"):
        list(Selection(SelectionSpec.model_validate({"strategy": STRATEGIES["labels"]}), keys, seed=0, trigger=0))
    with pytest.raises(SelectionError, match="none were given"):
        list(Selection(SelectionSpec.model_validate({"strategy": STRATEGIES["freshness"]}), keys, seed=0, trigger=0))


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"strategy": {"kind": "uniform", "ratio": 0.5, "size": 3}}, "either ratio or size"),
        ({"strategy": {"kind": "uniform", "ratio": 0.0}}, "greater than 0"),
        ({"strategy": {"kind": "uniform", "ratio": 1.1}}, "less than or equal to 1"),
        ({"strategy": {"kind": "weighted"}, "backend": "postgres"}, "either attribute or expression"),
        ({"strategy": {"kind": "weighted", "attribute": "a"}}, "set `backend: postgres`"),
        ({"strategy": {"kind": "balanced", "by": {"attribute": "a"}}}, "set `backend: postgres`"),
        ({"strategy": {"kind": "newest"}}, "newest"),
        (
            {"schedule": [{"from_trigger": 2, "strategy": {"kind": "all"}}, {"from_trigger": 2, "strategy": {"kind": "all"}}]},
            "ascend strictly",
        ),
    ],
)
def test_impossible_specs_are_refused(fields, rule):
    with pytest.raises(ValidationError, match=rule):
        SelectionSpec.model_validate(fields)


def test_the_retention_of_training_sets_cannot_forget_what_a_strategy_remembers():
    block = amount(selection={"strategy": {"kind": "freshness", "unused": 0.5}})
    PipelineSpec.model_validate(block)
    with pytest.raises(ValidationError, match=r"retention\.training_sets must be null"):
        PipelineSpec.model_validate(block | {"retention": {"training_sets": 3}})
