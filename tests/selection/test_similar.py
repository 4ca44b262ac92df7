"""Choice of labelled samples that resemble unlabelled ones, against its definition."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.errors import SelectionError
from modyn_dagster.reproducibility.randomness import hash_keys
from modyn_dagster.selection.presampling.similar_choice import choose_similar
from modyn_dagster.selection.presampling.similarity import Choice, Samples, directions

CHOICES: tuple[Choice, ...] = ("nearest", "proportional")


def samples_of(rng: np.random.Generator, n: int, first: int, n_classes: int, *, values: int = 3) -> Samples:
    """Samples on a coarse grid, so that embeddings are often equal, opposite or zero."""
    keys = np.sort(rng.choice(np.arange(first, first + 3 * n + 1), n, replace=False)).astype(np.uint64)
    return Samples(keys, rng.integers(0, n_classes, n), directions(rng.integers(-1, 3, (n, values))))


def in_chunks(candidates: Samples, cuts: list[int]) -> Callable[[], Iterator[Samples]]:
    """Passes over candidates, cut at some places."""
    edges = [0, *sorted(cut % (len(candidates.keys) + 1) for cut in cuts), len(candidates.keys)]

    def chunks() -> Iterator[Samples]:
        for begin, end in pairwise(edges):
            part = slice(begin, end)
            yield Samples(candidates.keys[part], candidates.classes[part], candidates.directions[part])

    return chunks


def chosen_by_brute_force(unlabelled: Samples, candidates: Samples, n: int, choice: Choice, salt: int) -> tuple[list[int], int]:
    """Chosen keys, and the number of uniform ones, from the definition: turn by turn over all pairs."""
    row = {int(key): i for i, key in enumerate(candidates.keys)}
    taken: list[int] = []
    n_uniform = 0
    for turn in range(n):
        place = turn % len(unlabelled.keys)
        pair_salt = int(hash_keys(unlabelled.keys[place : place + 1], salt)[0])
        ranked = []
        for key, i in row.items():
            if key in taken or candidates.classes[i] != unlabelled.classes[place]:
                continue
            cosine = sum(float(a) * float(b) for a, b in zip(unlabelled.directions[place], candidates.directions[i], strict=True))
            if choice == "proportional":
                bits = int(hash_keys(np.array([key], np.uint64), pair_salt)[0]) >> 11
                cosine = float(np.log(np.array([(bits + 0.5) / 2**53]))[0]) / max(cosine, 2.0**-25)
            ranked.append((-cosine, key))
        if not ranked:
            n_uniform += 1
            ranked = [(int(hash_keys(np.array([key], np.uint64), salt)[0]), key) for key in row if key not in taken]
        taken.append(min(ranked)[1])
    return sorted(taken), n_uniform


@pytest.mark.parametrize("choice", CHOICES)
@given(data=st.data())
def test_the_choice_is_that_of_the_definition_whatever_the_chunks_and_the_depth(choice: Choice, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n_classes, size = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 30))
    candidates = samples_of(rng, size, 0, n_classes)
    # A class more than the candidates have; no class at all.
    unlabelled = samples_of(rng, data.draw(st.integers(1, 6)), 1000, n_classes + 1)
    unlabelled.classes[rng.random(len(unlabelled.keys)) < 0.1] = -1
    n = data.draw(st.integers(1, size))
    expected = chosen_by_brute_force(unlabelled, candidates, n, choice, 5)
    for depth in (data.draw(st.integers(1, 5)), None):
        passes = in_chunks(candidates, data.draw(st.lists(st.integers(0, 30), max_size=4)))
        pool = [chunk.keys for chunk in passes()]
        result = choose_similar(unlabelled, passes, pool, n, choice=choice, salt=5, depth=depth)
        assert (result.keys.tolist(), result.n_uniform) == expected
    assert len(set(expected[0])) == n
    assert set(expected[0]) <= set(candidates.keys.tolist())


def test_cosines_of_directions_are_exact_in_any_order_of_addition() -> None:
    rng = np.random.default_rng(0)
    left, right = directions(rng.normal(size=(5, 4097)).astype(np.float32)), directions(rng.normal(size=(7, 4097)))
    right[0] = left[0]
    products = left @ right.T
    order = rng.permutation(4097)
    assert (left[:, order] @ right[:, order].T == products).all()
    for i, row in enumerate(left):
        for j, column in enumerate(right):
            exact = sum(int(a * 2**25) * int(b * 2**25) for a, b in zip(row, column, strict=True))
            assert products[i, j] == exact / 2**50
    assert products[0, 0] == pytest.approx(1, abs=1e-6)


def test_embeddings_without_a_direction_resemble_nothing() -> None:
    rows = directions(np.array([[0, 0], [np.nan, 1], [np.inf, 1], [1e-30, 0], [3e30, 4e30]], np.float32))
    assert rows.tolist()[:4] == [[0, 0], [0, 0], [0, 0], [1, 0]]
    assert rows[4] == pytest.approx([0.6, 0.8], abs=1e-7)


@pytest.mark.law
def test_draws_are_in_proportion_to_cosines() -> None:
    candidates = Samples(np.arange(4, dtype=np.uint64), np.array([0, 0, 0, 1]), directions([[1, 0], [1, 1], [1, 3], [1, 0]]))
    unlabelled = Samples(np.array([9], np.uint64), np.array([0]), directions([[1, 0]]))
    cosines = candidates.directions[:3] @ unlabelled.directions[0]
    counts, runs = np.zeros(4), 4000
    for salt in range(runs):
        passes = in_chunks(candidates, [])
        keys = choose_similar(unlabelled, passes, [candidates.keys], 1, choice="proportional", salt=salt).keys
        counts[keys.astype(np.int64)] += 1
    expected = np.append(cosines / cosines.sum(), 0)
    assert np.abs(counts / runs - expected).max() < 4 * np.sqrt(0.25 / runs)


def test_without_a_candidate_of_the_predicted_class_all_samples_are_equally_likely() -> None:
    candidates = Samples(np.arange(5, dtype=np.uint64), np.zeros(5, np.int64), directions(np.ones((5, 2))))
    unlabelled = Samples(np.array([9], np.uint64), np.array([1]), directions([[1, 0]]))
    counts = np.zeros(5)
    for salt in range(2000):
        result = choose_similar(unlabelled, in_chunks(candidates, []), [candidates.keys], 1, choice="nearest", salt=salt)
        assert result.n_uniform == 1
        counts[result.keys.astype(np.int64)] += 1
    assert np.abs(counts / 2000 - 0.2).max() < 4 * np.sqrt(0.16 / 2000)


def test_a_pool_that_shrank_meanwhile_is_an_error() -> None:
    candidates = Samples(np.arange(2, dtype=np.uint64), np.zeros(2, np.int64), directions(np.ones((2, 2))))
    with pytest.raises(SelectionError, match="2 samples were found instead of 3"):
        choose_similar(candidates, in_chunks(candidates, []), [candidates.keys], 3, choice="nearest", salt=0)
