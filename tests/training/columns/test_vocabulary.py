"""Vocabularies: scikit-learn as oracle, and laws over drawn columns."""

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import OneHotEncoder

from modyn_dagster.training.columns.encoders import Encoder, Encoders
from modyn_dagster.training.columns.encoding import Encoding
from modyn_dagster.training.columns.vocabulary import (
    Counts,
    TooManyValues,
    Vocabulary,
    as_bytes,
    vocabulary_of,
)
from tests.examples import examples

TEXTS = st.lists(st.text(alphabet="abß\0 ", max_size=3), min_size=1, max_size=40)


def objects(values: list[str]) -> np.ndarray:
    return np.array(values, dtype=object)


def counts_of(values: list[str], chunk: int = 100) -> Counts:
    counts = Counts()
    for start in range(0, len(values), chunk):
        counts.update(as_bytes(objects(values[start : start + chunk])))
    return counts


def fitted(values: list[str], *, max_values: int = 100, min_count: int = 1, known: Vocabulary | None = None) -> Vocabulary:
    return vocabulary_of(counts_of(values), max_values=max_values, min_count=min_count, refuse=False, known=known)


def texts(vocabulary: Vocabulary) -> list[str]:
    return [value.decode() for value in vocabulary.values.to_pylist()]


@settings(max_examples=examples(40))
@given(TEXTS, TEXTS)
def test_one_hot_columns_are_those_of_scikit_learn(train: list[str], new: list[str]) -> None:
    oracle = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    expected = oracle.fit(objects(train)[:, None]).transform(objects(new)[:, None])
    encoder = Encoder.of(Encoding("c", "one_hot"), vocabulary=fitted(train))
    found = np.zeros((len(new), encoder.encoding.width))
    encoder.into(objects(new), found)
    order = np.argsort([value.encode() for value in oracle.categories_[0]], kind="stable")
    np.testing.assert_array_equal(found[:, 1:], expected[:, order])
    assert not found[:, 0].any(), "no training saw an unknown value, so it says nothing"


@settings(max_examples=examples(40))
@given(TEXTS, st.integers(1, 5), st.integers(1, 3), st.randoms(use_true_random=False), st.integers(1, 7))
def test_the_order_of_samples_and_chunks_does_not_matter(
    values: list[str], most: int, least: int, random: object, chunk: int
) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    bounds = {"max_values": most, "min_count": least, "refuse": False}
    one, other = vocabulary_of(counts_of(values), **bounds), vocabulary_of(counts_of(shuffled, chunk), **bounds)  # type: ignore[arg-type]
    assert one.values.equals(other.values)
    assert one.knows_unknown == other.knows_unknown


@settings(max_examples=examples(40))
@given(TEXTS, st.integers(1, 5), st.integers(1, 3))
def test_values_of_most_samples_are_kept_and_stand_in_the_order_of_their_bytes(values: list[str], most: int, least: int) -> None:
    distinct = sorted(set(values), key=lambda value: (-values.count(value), value.encode()))
    kept = [value for value in distinct if values.count(value) >= least][:most]
    found = fitted(values, max_values=most, min_count=least)
    assert texts(found) == sorted(kept, key=str.encode)
    assert found.knows_unknown == (len(kept) < len(set(values)))


@settings(max_examples=examples(40))
@given(TEXTS, TEXTS, st.integers(1, 6))
def test_values_of_an_earlier_vocabulary_keep_their_numbers(before: list[str], now: list[str], most: int) -> None:
    earlier = fitted(before, max_values=most)
    later = fitted(now, max_values=most, known=earlier)
    assert texts(later)[: len(earlier.values)] == texts(earlier)
    assert len(later.values) <= most
    added = texts(later)[len(earlier.values) :]
    assert added == sorted(added, key=str.encode)
    assert set(added) <= set(now) - set(texts(earlier))
    assert later.knows_unknown == (earlier.knows_unknown or not set(now) <= set(texts(later)))


@settings(max_examples=examples(40))
@given(TEXTS)
def test_a_state_is_restored_to_the_bit(values: list[str]) -> None:
    encoders = Encoders(
        {
            "c": Encoder.of(Encoding("c", "one_hot"), vocabulary=fitted(values, max_values=3)),
            "h": Encoder.of(Encoding("h", "hash", buckets=5)),
            "x": Encoder.of(Encoding("x", "impute"), fill=0.1),
        }
    )
    encodings = [Encoding.from_json(each.encoding.to_json()) for each in encoders.by_column.values()]
    state = encoders.state()
    empty = Encoders.empty_state(encodings)
    assert {name: (array.shape, array.dtype) for name, array in empty.items()} == {
        name: (array.shape, array.dtype) for name, array in state.items()
    }
    restored = Encoders.of_state(encodings, state)
    assert restored["c"].vocabulary.values.equals(encoders["c"].vocabulary.values)
    assert restored["x"].fill == 0.1
    assert restored.state().keys() == state.keys()


@settings(max_examples=examples(40))
@given(TEXTS, st.integers(1, 9))
def test_buckets_are_those_of_xxh32(values: list[str], buckets: int) -> None:
    encoder = Encoder.of(Encoding("c", "hash", buckets=buckets))
    found = np.zeros((len(values), buckets))
    encoder.into(objects(values), found)
    assert found.argmax(1).tolist() == [xxhash.xxh32_intdigest(value.encode()) % buckets for value in values]
    assert (found.sum(1) == 1).all()


def test_more_values_than_the_bound_are_refused_where_asked() -> None:
    with pytest.raises(TooManyValues) as caught:
        vocabulary_of(counts_of(["a", "b", "c", "a"]), max_values=2, min_count=1, refuse=True)
    assert caught.value.n == 3


def test_counts_are_merged_however_many_values_there_are() -> None:
    rng = np.random.default_rng(0)
    values = [f"v{i}" for i in rng.integers(0, 20_000, 60_000).tolist()]
    found = counts_of(values, 8192).table()
    expected = dict(zip(*np.unique(values, return_counts=True), strict=True))
    assert {value.decode(): n for value, n in zip(*found.to_pydict().values(), strict=True)} == expected


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (np.array([-3, 12], dtype=np.int32), [b"-3", b"12"]),
        (np.array([True, False]), [b"true", b"false"]),
        (np.array([b"ab\xff", b""]), [b"ab\xff", b""]),
        (np.array(["ü", ""]), ["ü".encode(), b""]),
        (np.array(["x", None, float("nan")], dtype=object), [b"x", b"", b""]),
        (np.array([None, None], dtype=object), [b"", b""]),
        (np.array([], dtype=object), []),
    ],
)
def test_every_kind_of_column_is_text(column: np.ndarray, expected: list[bytes]) -> None:
    assert as_bytes(column).to_pylist() == expected


@pytest.mark.parametrize("column", [["x", 3], [1, 2], [True], [1.5], ["x", "y", {}]])
def test_objects_that_are_no_texts_are_refused(column: list[object]) -> None:
    with pytest.raises(pa.ArrowException):
        as_bytes(np.array(column, dtype=object))


@pytest.mark.parametrize("content", [{"kind": "other"}, {"kind": "hash", "buckets": -1}, {"kind": "number", "n_values": "9"}])
def test_a_record_that_is_no_encoding_is_refused(content: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="is no encoding of a column"):
        Encoding.from_json({"column": "c"} | content)
