"""Columns that appear later: batches that lack one are read as if their files had held the value of its rule."""

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastpath import BatchStream, Columns
from modyn_dagster.catalog.batches import get_batch
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.registration.batches import register_again
from modyn_dagster.errors import ConfigError
from modyn_dagster.ingestion.batches.commit import ReadyBatch, commit_batches
from modyn_dagster.ingestion.batches.read_batch import BatchReader
from modyn_dagster.ingestion.ingest import read_content
from modyn_dagster.ingestion.sources.source import open_source
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.formats import AbsentRule
from tests.examples import examples
from tests.ingestion.widening import (
    FILL,
    NEW,
    NEW_RECORD,
    OLD,
    OLD_RECORD,
    WRITERS,
    Row,
    narrowed,
    record_spec,
    records,
    rows_of,
    spec_of,
)
from tests.ingestion.world import World, dataset_spec

EXAMPLES = count()


def filled(rows: Sequence[Row], missing: Sequence[str]) -> list[Row]:
    return [{**row, **{name: NEW[name] for name in missing}} for row in rows]


def assert_reads_equal(world: World, one: DatasetSpec, other: DatasetSpec, seed: int = 0) -> None:
    """Every way of reading gives equal samples for two datasets."""
    keys = world.keys(one)
    np.testing.assert_array_equal(keys, world.keys(other))
    keys = np.random.default_rng(seed).permutation(np.concatenate([keys, keys[::2]]))
    readers = [world.reader(one), world.reader(other)]
    for part in (keys, keys[:1], keys[:0], np.sort(keys)[: len(keys) // 2]):
        ours, theirs = (reader.read(part) for reader in readers)
        assert list(ours.columns) == list(theirs.columns)
        for name, values in ours.columns.items():
            assert values.dtype == theirs.columns[name].dtype, name
            np.testing.assert_array_equal(values, theirs.columns[name], strict=True)
        raw = readers[0].store.read(part)
        decoded = readers[0].decode(part, raw)
        for name, values in decoded.columns.items():
            np.testing.assert_array_equal(values, theirs.columns[name], strict=True)


@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    batches=st.lists(st.tuples(st.integers(1, 5), st.sets(st.sampled_from(sorted(NEW)))), min_size=1, max_size=4),
    kind=st.sampled_from(sorted(WRITERS)),
)
def test_files_without_a_column_are_read_as_if_it_had_been_filled_by_hand(
    world: World, kind: str, batches: list[tuple[int, set[str]]]
) -> None:
    # One database serves all examples.
    one, other = f"ruled{next(EXAMPLES)}", f"hand{next(EXAMPLES)}"
    ruled, by_hand = spec_of(kind, one, list(NEW)), spec_of(kind, other, list(NEW))
    for number, (n, missing) in enumerate(batches):
        rows = rows_of(number, n)
        names = [*OLD, *(name for name in NEW if name not in missing)]
        world.write(f"{one}_{number}", WRITERS[kind](rows, names))
        world.write(f"{other}_{number}", WRITERS[kind](filled(rows, sorted(missing)), [*OLD, *NEW]))
    for spec in (ruled, by_hand):
        assert len(world.run_import(spec).ingested) == len(batches)
    assert_reads_equal(world, ruled, by_hand)


@pytest.mark.parametrize("kind", sorted(WRITERS))
def test_a_dataset_is_widened_after_batches_were_ingested(world: World, kind: str) -> None:
    early, late, later = rows_of(0, 4), rows_of(1, 3), rows_of(2, 3)
    world.write("ruled_0", WRITERS[kind](early, OLD))
    assert len(world.run_import(spec_of(kind, "ruled")).ingested) == 1
    before = world.files()
    old = world.reader(spec_of(kind, "ruled")).read(world.keys(spec_of(kind, "ruled")))
    world.write("ruled_1", WRITERS[kind](late, [*OLD, "z"]))
    world.write("ruled_2", WRITERS[kind](later, [*OLD, "z", "word"]))
    for rules in (["z"], ["z", "word"]):
        world.run_import(spec_of(kind, "ruled", rules))
        if rules == ["z"]:
            assert world.states(spec_of(kind, "ruled", rules))["ruled_2"] == "failed"
            world.write("ruled_3", WRITERS[kind](rows_of(3, 2), [*OLD, "z", "word"]))
    spec = spec_of(kind, "ruled", ["z", "word"])
    assert [column.name for column in world.dataset(spec).columns or ()] == [*OLD, "z", "word"]
    # Nothing of what was there is written again, and the columns of before have the bits of before.
    assert {path: content for path, content in world.files().items() if path in before} == before
    keys = world.keys(spec)
    now = world.reader(spec).read(keys)
    for name, values in old.columns.items():
        np.testing.assert_array_equal(now.columns[name][: len(early)], values, strict=True)
    assert now.columns["z"].tolist() == [0.0] * 4 + [row["z"] for row in late] + [row["z"] for row in rows_of(3, 2)]
    assert now.columns["word"].tolist() == ["none"] * 7 + [row["word"] for row in rows_of(3, 2)]


def widened_records(world: World) -> tuple[DatasetSpec, DatasetSpec]:
    """Two early and two late batches: with fields added in between, and with all fields from the beginning."""
    wide, by_hand = record_spec("ruled", NEW_RECORD, FILL), record_spec("hand", NEW_RECORD, {})
    for number in range(4):
        rows = records(number, 5 + number)
        early = number < 2
        if early:
            rows["z"], rows["v"] = FILL["z"], FILL["v"]
        world.write(f"hand_{number}", rows.tobytes())
        world.write(f"ruled_{number}", narrowed(rows).tobytes() if early else rows.tobytes())
        world.run_import(record_spec("ruled", OLD_RECORD, {}) if early else wide)
    world.run_import(by_hand)
    assert set(world.states(wide).values()) == {"ingested"}
    return wide, by_hand


def test_records_get_fields_after_batches_were_ingested(world: World) -> None:
    wide, by_hand = widened_records(world)
    keys = np.random.default_rng(1).permutation(world.keys(wide))
    ours, theirs = world.reader(wide), world.reader(by_hand)
    for part in (keys, keys[:3], np.sort(keys)[:5], np.sort(keys)[-5:], keys[:0]):
        one, other = ours.read(part), theirs.read(part)
        assert set(one.columns) == set(other.columns)
        for name, values in one.columns.items():
            np.testing.assert_array_equal(values, other.columns[name], strict=True)
        np.testing.assert_array_equal(ours.store.read(part).rows, theirs.store.read(part).rows)  # type: ignore[union-attr]
        assert ours.read_blobs(part) == theirs.read_blobs(part)
        assert [row.tobytes() for row in ours.resident.store.read_blobs(part)] == ours.read_blobs(part)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_stream_of_batches_holds_the_values(world: World, threads: int) -> None:
    wide, by_hand = widened_records(world)
    keys = world.keys(wide)
    columns = Columns(NEW_RECORD, {"features": (["x", "z", "v"], np.float32), "z": "z"})
    kept: list[list[dict[str, Any]]] = []
    for spec in (wide, by_hand):
        with BatchStream(world.reader(spec).store, keys, 4, shuffle=True, seed=3, columns=columns, threads=threads) as stream:
            kept.append([{name: values.copy() for name, values in (batch.columns or {}).items()} for batch in stream])
    for one, other in zip(*kept, strict=True):
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name], strict=True)
    rows: list[list[bytes]] = []
    for spec in (wide, by_hand):
        with BatchStream(world.reader(spec).store, keys, 4, threads=threads) as stream:
            rows.append([batch.rows.rows.tobytes() for batch in stream if batch.rows is not None])
    assert rows[0] == rows[1]


def test_a_column_that_vanishes_or_appears_without_a_rule_is_refused_by_name(world: World) -> None:
    world.write("d_0.csv", "time,x,z,label\n2020-01-01,1,1,0\n")
    world.write("d_1.csv", "time,x,label\n2020-01-02,1,0\n")
    world.write("d_2.csv", "time,x,z,label,w\n2020-01-02,1,1,0,5\n")
    world.run_import(dataset_spec())
    errors = {batch.partition_key: batch.error or "" for batch in world.batches(dataset_spec())}
    assert "z is missing: deliver the file with it, or add `absent: {z: {fill: VALUE}}` to the dataset's spec" in errors["d_1"]
    assert "w is new: remove it from the file, or add `absent: {w: {fill: VALUE}}` to the dataset's spec" in errors["d_2"]
    # And the advice helps.
    spec = dataset_spec(absent={"z": {"fill": 0}, "w": {"fill": 0}})
    for key in ("d_1", "d_2"):
        with world.engine.begin() as conn:
            again = register_again(conn, get_batch(conn, world.dataset(spec).id, key))
        assert again is not None
        world.ingest(spec, again.partition_key)
    columns = world.reader(spec).read(world.keys(spec)).columns
    assert columns["z"].tolist() == [1, 0, 1]
    assert columns["w"].tolist() == [0.0, 0.0, 5.0]


@pytest.mark.parametrize(
    ("absent", "field"),
    [
        ({"x": {"fill": "text"}}, "absent.x.fill"),
        ({"x": {"fill": 0.5}}, "absent.x.fill"),
        ({"x": {"fill": 0, "dtype": "float64"}}, "absent.x.dtype"),
    ],
)
def test_a_rule_that_does_not_fit_its_column_is_refused(world: World, absent: Any, field: str) -> None:
    world.write("a.csv", "time,x,label\n2020-01-01,1,0\n")
    world.run_import(dataset_spec())
    with pytest.raises(ConfigError) as caught:
        world.dataset(dataset_spec(absent=absent))
    assert caught.value.field == field


def test_a_rule_stays_once_data_are_ingested(world: World) -> None:
    world.write("a.csv", "time,x,label\n2020-01-01,1,0\n")
    world.run_import(dataset_spec(absent={"z": {"fill": 0}}))
    for absent in ({}, {"z": {"fill": 1}}):
        with pytest.raises(ConfigError, match="cannot change once data are ingested"):
            world.dataset(dataset_spec(absent=absent))
    world.dataset(dataset_spec(absent={"z": {"fill": 0}, "w": {"fill": "a"}}))


@pytest.mark.parametrize("absent", [{"time": {"fill": 0}}, {"label": {"fill": 0}}, {"x": {"fill": "a", "dtype": "int64"}}])
def test_impossible_rules_are_refused_with_the_spec(absent: Any) -> None:
    with pytest.raises(ValueError, match="absent"):
        dataset_spec(absent=absent)


def test_a_batch_read_before_the_dataset_was_widened_names_its_own_layout(world: World) -> None:
    """Two processes: one ingests with the old spec while the other widens."""
    world.write("a.csv", "time,x,label\n2020-01-01,1,0\n")
    world.run_import(dataset_spec())
    world.write("b.csv", "time,x,label\n2020-01-02,2,0\n")
    world.register_all(dataset_spec())
    source, old = open_source(str(world.root), {}), world.dataset(dataset_spec())
    batch = next(batch for batch in world.batches(dataset_spec()) if batch.partition_key == "b")
    content = read_content(source, dataset_spec(), old, batch, BatchReader(source, dataset_spec()))
    wide = dataset_spec(absent={"z": {"fill": 4}})
    world.dataset(wide)
    with transaction(world.engine) as conn:
        assert commit_batches(conn, world.home, dataset_spec(), old, [ReadyBatch(batch, content)])
        assert get_batch(conn, old.id, "b").layout == 0
    assert world.reader(wide).read(world.keys(wide)).columns["z"].tolist() == [4.0, 4.0]


@settings(max_examples=examples(200))
@given(
    fill=st.one_of(
        st.integers(-(2**65), 2**65),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from([10**400, 2**24 + 1, 2**53 + 1]),
    ),
    dtype=st.sampled_from(["i1", "u1", "i2", ">u4", "i8", "u8", "f4", ">f8"]),
)
def test_a_number_that_its_field_cannot_hold_is_refused_and_no_other(fill: int | float, dtype: str) -> None:
    field = np.dtype(dtype)
    if isinstance(fill, float):
        with np.errstate(over="ignore"):
            fits = field.kind == "f" and bool(np.isfinite(np.array(fill).astype(field))) == bool(np.isfinite(fill))
    elif field.kind == "f":
        exact = 2 ** (np.finfo(field).nmant + 1)
        # Integers beyond that have neighbours of their own; the last bits of those that fit are zeros.
        fits = abs(fill) <= exact or (abs(fill) < 10**30 and fill % (1 << (abs(fill).bit_length() - exact.bit_length() + 1)) == 0)
    else:
        fits = np.iinfo(field).min <= fill <= np.iinfo(field).max
    rule = AbsentRule(fill=fill)
    if not fits:
        with pytest.raises(ValueError, match=r"fit into|no value"):
            rule.filled_field(field)
        return
    held = rule.filled_field(field)
    assert held.dtype == field
    np.testing.assert_array_equal(held, np.array(fill, dtype=field))


@pytest.mark.parametrize(("fill", "dtype"), [(2**53 + 1, "float64"), (10**400, "float64"), (2**63, "int64")])
def test_a_number_that_its_column_cannot_hold_is_refused(fill: int, dtype: str) -> None:
    with pytest.raises(ValueError, match="does not fit into"):
        AbsentRule(fill=fill).value_as(dtype)


@pytest.mark.parametrize("line", ['"größe": 2.5', '"gr\\u00F6\\u00dfe": 2.5', '"größe": 2.5, "note": "a\\/b"', '"größe": null'])
def test_a_name_is_found_however_json_writes_it(world: World, line: str) -> None:
    world.write("a.jsonl", '{"time": "2020-01-01", "x": 1, "label": 0, "note": "c"}\n')
    noted = line if "note" in line else f'{line}, "note": "größe"'
    world.write("b.jsonl", f'{{"time": "2020-01-02", "x": 1, "label": 0, {noted}}}\n')
    world.write("c.jsonl", '{"time": "2020-01-03", "x": 1, "label": 0, "note": "größe \\\\ größe"}\n')
    spec = dataset_spec(format={"kind": "jsonl"}, absent={"größe": {"fill": 4}}, batches={"kind": "file", "pattern": "*.jsonl"})
    world.run_import(spec)
    states = {batch.partition_key: batch.error for batch in world.batches(spec)}
    assert set(states.values()) == {None}
    # An explicit null is a missing number, not a column that is absent.
    held = np.nan if "null" in line else 2.5
    np.testing.assert_array_equal(world.reader(spec).read(world.keys(spec)).columns["größe"], [4.0, held, 4.0])
