"""Labels known at a position: the latest time wins, then the smallest digest, whatever the order of files and rows."""

import io
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastpath.errors import CorruptFile
from fastpath.format.labels.known_labels import KnownLabels, LabelPart, MergedLabels
from fastpath.format.labels.label_file import LabelRows, write_label_rows
from tests.fastpath.made_store import digest

N = 6
#: Batch, position, label, time at which it was known, digest.
label_rows = st.tuples(st.integers(0, 1), st.integers(0, N - 1), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))


def known(folder: Path, files: list[list[tuple[int, int, int, int, int]]]) -> KnownLabels:
    """Write one file of each list of rows, and open them all."""
    parts: dict[int, list[LabelPart]] = {}
    for content in files:
        columns = [np.array(column, np.int64) for column in zip(*content, strict=True)] or [np.empty(0, np.int64)] * 5
        keys = ((columns[0] << 32) + columns[1]).astype(np.uint64)
        rows = LabelRows(keys, columns[2], columns[3].view("datetime64[us]"), columns[4].astype(np.uint64)).sorted()
        out = io.BytesIO()
        write_label_rows(out, rows)
        path = folder / f"{digest(out.getvalue())}.arrow"
        path.write_bytes(out.getvalue())
        for ordinal, first, n in rows.parts():
            parts.setdefault(ordinal, []).append(LabelPart(path, digest(out.getvalue()), first, n))
    return KnownLabels("labels", parts)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.lists(st.lists(label_rows, max_size=8), max_size=4), data=st.data())
def test_labels_are_those_of_the_rows_that_win_in_any_order_of_files(
    tmp_path: Path, files: list[list[tuple[int, int, int, int, int]]], data: st.DataObject
) -> None:
    # A digest is of the label: equal ones at one time are equal labels.
    files = [[(b, p, label, time, label) for b, p, label, time, _ in content] for content in files]
    expected = np.full((2, N), -1)
    best: dict[tuple[int, int], tuple[int, int]] = {}
    for ordinal, position, label, time, order in (row for content in files for row in content):
        rank = (-time, order)
        if (ordinal, position) not in best or rank < best[ordinal, position]:
            best[ordinal, position] = rank
            expected[ordinal, position] = label
    labels = known(tmp_path, data.draw(st.permutations(files)))
    for ordinal in range(2):
        np.testing.assert_array_equal(labels.of(ordinal, N), expected[ordinal])
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(labels)).of(ordinal, N), expected[ordinal])  # noqa: S301


def test_labels_of_samples_that_a_batch_does_not_have_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    labels = known(tmp_path, [[(0, 5, 1, 0, 0)]])
    assert labels.of(0, 6)[5] == 1
    with pytest.raises(CorruptFile, match=r"\.arrow.*labels of the 5 samples of batch 0"):
        labels.of(0, 5)


def test_class_indices_are_not_taken_for_targets(tmp_path: Path) -> None:
    labels = known(tmp_path, [[(0, 5, 1, 0, 0)]])
    with pytest.raises(CorruptFile, match="targets"):
        KnownLabels("targets", labels.parts).of(0, 6)


def test_a_missing_file_is_an_error_only_for_its_batches(tmp_path: Path) -> None:
    labels = known(tmp_path, [[(0, 4, 3, 7, 7)]])
    [part] = labels.parts[0]
    part.path.unlink()
    assert labels.of(1, 6).tolist() == [-1] * 6
    with pytest.raises(CorruptFile):
        labels.of(0, 7)


def test_merged_labels_in_memory_are_bounded_by_their_bytes(tmp_path: Path) -> None:
    parts = tuple(known(tmp_path, [[(0, 4, 3, 7, 7)]]).parts[0])
    cache = MergedLabels(most_bytes=300)
    merges = [cache.of((parts, "labels", 0, n, 0, 0)) for n in (100, 100, 50, 50, 100)]
    assert merges[0] is merges[1] is merges[4]
    assert cache.n_bytes == 150
    large = cache.of((parts, "labels", 0, 10_000, 0, 0))
    assert large[:6].tolist() == [-1, -1, -1, -1, 3, -1]
    assert cache.n_bytes == 10_000
    cache.of((parts, "labels", 0, 200, 0, 0))
    assert cache.n_bytes == 200


@pytest.mark.parametrize(("largest", "width"), [(127, 1), (128, 2), (32_768, 4), (2**31, 8)])
def test_class_indices_are_kept_in_the_narrowest_type_that_holds_them(tmp_path: Path, largest: int, width: int) -> None:
    labels = known(tmp_path, [[(0, 1, largest, 7, 7), (0, 3, 0, 7, 7)]])
    expected = [-1, largest, -1, 0, -1]
    values, some = labels.of(0, 5), labels.take(0, 5, np.array([3, 1, 1, 0]))
    assert (str(values.dtype), values.tolist()) == ("int64", expected)
    assert (str(some.dtype), some.tolist()) == ("int64", [0, largest, largest, -1])
    cache = MergedLabels()
    cache.of((tuple(labels.parts[0]), "labels", 0, 5, 0, 0))
    assert cache.n_bytes == 5 * width
