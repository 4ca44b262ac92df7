"""Columns equal NumPy's ``astype`` on the same records."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fastpath import Columns, Group, SampleStore
from tests.examples import examples
from tests.fastpath.made_store import MadeBatch, MadeStore, PlacedSample, rows

CODES = ["?", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8"]
SOURCES = [order + code for code in CODES for order in ("<", ">")]
TARGETS = ["float32", "float64", "int32", "int64", "uint8", "bool"]
#: Fields of every kind that rows can have, sub-arrays, records and text among them.
OWN = [*SOURCES, "<M8[us]", ">M8[s]", ">c8", "<c16", "S3", "<U2", ">U2", "V4", "<f2", ">i2"]


def store_of(home: Path, records: np.ndarray) -> SampleStore:
    width = records.dtype.itemsize
    content = records.tobytes()
    samples = [PlacedSample(0, i % 2, content[i * width : (i + 1) * width]) for i in range(len(records))]
    return MadeStore(home, [MadeBatch(0, samples)]).open(dtype=records.dtype)


def records_of(dtype: np.dtype[Any], n: int, seed: int) -> np.ndarray:
    """Records of values that every target type can hold: what others become is not defined, in NumPy as here."""
    rng = np.random.default_rng(seed)
    records = np.zeros(n, dtype=dtype)
    for name in dtype.names or ():
        base, shape = dtype[name].subdtype or (dtype[name], ())
        if base.kind in "biuf":
            high = 2 if base.kind == "b" else 120
            values = rng.integers(0, high, (n, *shape))
            records[name] = values + (rng.integers(0, 4, (n, *shape)) / 4 if base.kind == "f" else 0)
        else:
            records[name] = (
                rng.integers(0, 256, (n, *shape, base.itemsize), dtype=np.uint8).view(f"V{base.itemsize}")[..., 0].view(base)
            )
    return records


def expected(records: np.ndarray, fields: tuple[str, ...], target: str) -> np.ndarray:
    parts = [
        records[name].reshape(len(records), records.dtype[name].itemsize // records.dtype[name].base.itemsize) for name in fields
    ]
    parts = [part.astype(target) for part in parts]
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize("target", TARGETS)
def test_every_type_is_converted_as_astype_does(tmp_path: Path, target: str) -> None:
    dtype = np.dtype([(f"a{i}", code, shape) for i, (code, shape) in enumerate((c, s) for c in SOURCES for s in ((), (3,)))])
    records = records_of(dtype, 37, 0)
    names = tuple(dtype.names or ())
    with store_of(tmp_path, records) as store:
        found = store.read_columns(np.arange(37, dtype=np.uint64), Columns(dtype, {"all": (names, target)}))
    np.testing.assert_array_equal(found["all"], expected(records, names, target))
    assert found["all"].dtype == target


@pytest.mark.parametrize("code", ["<f2", "<f4", "<f8", ">f2", ">f4", ">f8"])
@pytest.mark.parametrize("target", ["float32", "float64", "bool"])
def test_all_bits_of_floats_are_converted_as_astype_does(tmp_path: Path, code: str, target: str) -> None:
    size = int(code[-1])
    bits = np.arange(2**16, dtype=np.uint64) * np.uint64({2: 1, 4: 2**16 + 1, 8: 2**48 + 2**24 + 1}[size])
    edges = np.array([0, 1, 2 ** (8 * size - 1), 2 ** (8 * size) - 1], dtype=np.uint64)
    bits = np.concatenate((bits, edges)).astype(f"u{size}")
    records = bits.view(f"f{size}").astype(code).view([("x", code)])
    with store_of(tmp_path, records[::97]) as store, np.errstate(all="ignore"):
        found = store.read_columns(np.arange(len(records[::97]), dtype=np.uint64), Columns(records.dtype, {"x": (["x"], target)}))
        wanted = records["x"][::97].astype(target)
    np.testing.assert_array_equal(found["x"][:, 0], wanted)
    if target != "bool":
        np.testing.assert_array_equal(np.signbit(found["x"][:, 0]), np.signbit(wanted))


@pytest.mark.parametrize("target", ["int32", "int64", "uint8", "float64", "float32", "bool"])
@pytest.mark.parametrize("code", ["i8", "u8", "i4", "u4", "i2", "i1"])
def test_integers_of_any_size_wrap_as_astype_does(tmp_path: Path, code: str, target: str) -> None:
    info = np.iinfo(code)
    values = np.array([info.min, info.min + 1, -1 if info.min else 1, 0, 1, 255, 256, info.max - 1, info.max], dtype=object)
    records = np.array([value % (int(info.max) + 1) if value > info.max else value for value in values], dtype=code).view(
        [("x", code)]
    )
    with store_of(tmp_path, records) as store:
        found = store.read_columns(np.arange(len(records), dtype=np.uint64), Columns(records.dtype, {"x": (["x"], target)}))
    np.testing.assert_array_equal(found["x"][:, 0], records["x"].astype(target))


nested = np.dtype([("p", ">i4"), ("q", [("r", "<u2"), ("s", ">f8", (2,))])])
OWN_FIELD = st.sampled_from([*(np.dtype(code) for code in OWN), nested])


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(OWN_FIELD, hnp.array_shapes(min_dims=0, max_dims=2, max_side=3)), min_size=1, max_size=4),
    st.integers(0, 9),
)
def test_a_field_by_itself_keeps_its_type_and_shape(tmp_path_factory: Any, fields: list[Any], n: int) -> None:
    dtype = np.dtype([(f"a{i}", base, shape) for i, (base, shape) in enumerate(fields)])
    rng = np.random.default_rng(n)
    records = rng.integers(0, 256, (n + 1) * dtype.itemsize, dtype=np.uint8).view(dtype)
    columns = Columns(dtype, {name: name for name in dtype.names or ()})
    with store_of(tmp_path_factory.mktemp("own"), records) as store:
        found = store.read_columns(np.arange(n + 1, dtype=np.uint64), columns)
    for name, (base, shape) in zip(dtype.names or (), fields):
        wanted = records[name].astype(base.newbyteorder("="))
        assert (found[name].shape, found[name].dtype) == ((n + 1, *shape), wanted.dtype)
        assert found[name].tobytes() == wanted.tobytes()


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(SOURCES), st.sampled_from([(), (2,), (5,), (2, 3)])), min_size=1, max_size=8),
    st.sampled_from(TARGETS),
    st.integers(0, 70),
    st.data(),
)
def test_groups_of_any_fields_in_any_order_are_the_records(
    tmp_path_factory: Any, fields: list[tuple[str, tuple[int, ...]]], target: str, n: int, data: st.DataObject
) -> None:
    dtype = np.dtype([(f"a{i}", code, shape) for i, (code, shape) in enumerate(fields)], align=data.draw(st.booleans()))
    records = records_of(dtype, n + 1, n)
    names = list(dtype.names or ())
    one = tuple(data.draw(st.permutations(names)))
    two = tuple(data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=4)))
    columns = Columns(dtype, {"one": (one, target), "two": Group(two, np.dtype("float64")), "own": names[0]})
    keys = np.random.default_rng(n).integers(0, n + 1, 2 * n).astype(np.uint64)
    with store_of(tmp_path_factory.mktemp("groups"), records) as store:
        found = store.read_columns(keys, columns)
    chosen = records[keys.astype(np.int64)]
    np.testing.assert_array_equal(found["one"], expected(chosen, one, target))
    np.testing.assert_array_equal(found["two"], expected(chosen, two, "float64"))
    np.testing.assert_array_equal(found["own"], chosen[names[0]])


@pytest.mark.parametrize("start", [0, 16, 1])
def test_large_results_are_the_same_wherever_they_begin(tmp_path: Path, start: int) -> None:
    # Results of more than two megabytes that begin at a cache line are written past the caches.
    dtype = np.dtype([("y", "<f4"), ("x", "<i4", (26,)), ("b", "u1", (3,))])
    records = records_of(dtype, 1000, 0)
    columns = Columns(dtype, {"x": (["x"], "int64"), "y": "y", "b": (["b"], "uint8")})
    keys = np.random.default_rng(0).integers(0, 1000, 20_011).astype(np.uint64)
    memory = np.zeros(columns.nbytes(len(keys)) + 64 + start, dtype=np.uint8)
    memory = memory[-memory.__array_interface__["data"][0] % 64 + start :]
    with store_of(tmp_path, records) as store:
        out = columns.within(memory, len(keys))
        store.columns_into(keys, columns, out)
        found = rows(store, keys)
    chosen = records[keys.astype(np.int64)]
    for name in ("x", "y", "b"):
        np.testing.assert_array_equal(out[name], chosen[name])
    np.testing.assert_array_equal(found.reshape(-1).view(dtype), chosen)


def test_shapes_bytes_and_memory_fit_together() -> None:
    dtype = np.dtype([("a", "<f4", (2, 2)), ("b", "<i2"), ("c", ">u4")])
    columns = Columns(dtype, {"x": (["a", "b"], np.float32), "a": "a", "c": "c"})
    shapes = {"x": ((7, 5), np.dtype(np.float32)), "a": ((7, 2, 2), np.dtype(np.float32)), "c": ((7,), np.dtype(np.uint32))}
    assert columns.shapes(7) == shapes
    assert columns.nbytes(7) == 192 + 128 + 64
    for arrays in (columns.allocate(7), columns.within(np.empty(384, np.uint8), 7)):
        assert {name: (array.shape, array.dtype) for name, array in arrays.items()} == shapes
        assert len({id(array.base) for array in arrays.values()}) <= 3
    assert all(array.ctypes.data % 64 == 0 for array in columns.allocate(7).values())
    with pytest.raises(ValueError, match="7 rows take 384 bytes, the buffer has 383"):
        columns.within(np.empty(383, np.uint8), 7)


def test_adjacent_fields_of_one_conversion_are_one_operation() -> None:
    dtype = np.dtype([("y", "<f4"), *((f"n{i}", "<f4") for i in range(13)), *((f"c{i}", "<i4") for i in range(26))])
    columns = Columns(dtype, {"num": ([f"n{i}" for i in range(13)], "f4"), "cat": ([f"c{i}" for i in range(26)], "i8"), "y": "y"})
    assert len(columns.operations) == 3
    assert columns.span == (0, 160)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"x": "z"}, r"column 'x': the rows have no field 'z'; they have \['a', 't'\]"),
        ({"x": (["a"], "int16")}, "column 'x': int16 is not one of float32"),
        ({"x": (["a"], ">f4")}, "column 'x': >f4 is not one of float32"),
        ({"x": (["t"], "float32")}, "values of datetime64.* cannot be converted to float32"),
    ],
)
def test_impossible_columns_are_refused(groups: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Columns(np.dtype([("a", "<f4"), ("t", "<M8[us]")]), groups)


def test_outputs_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    dtype = np.dtype([("a", "<f4")])
    columns = Columns(dtype, {"a": (["a"], "f4")})
    keys = np.zeros(3, np.uint64)
    with store_of(tmp_path, np.zeros(1, dtype)) as store:
        for out in ({}, {"a": np.empty((3, 2), "f4")}, {"a": np.empty((3, 1), "f8")}, {"a": np.empty((3, 2), "f4")[:, :1]}):
            with pytest.raises(ValueError, match="column 'a'"):
                store.columns_into(keys, columns, out)
        with pytest.raises(ValueError, match="columns are of rows of 8 bytes, a sample has 4"):
            store.read_columns(keys, Columns(np.dtype([("a", "<f8")]), {"a": "a"}))


def test_rows_with_python_objects_are_refused():
    with pytest.raises(ValueError, match="Python objects"):
        Columns(np.dtype([("a", "O")]), {"a": "a"})
