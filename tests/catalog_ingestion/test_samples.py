"""Samples: binary COPY in, keys, labels and values out in order."""

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.batches import BatchFacts, FileFacts, mark_ingested
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.datasets import sample
from modyn_dagster.catalog.registration.batches import Announcement, register
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.catalog.samples import SampleRows, copy_samples, iter_keys
from modyn_dagster.keys import KeyArray, key_of, keys_of
from tests.ingestion.world import dataset_spec

END = 2**62


def ingest(engine: sa.Engine, sizes: list[int], name: str = "d") -> tuple[int, KeyArray]:
    """Batches of these sizes; a size of 0 stays open."""
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    with transaction(engine) as conn:
        dataset_id = ensure_dataset(conn, dataset_spec(name=name)).id
        rows = register(conn, dataset_id, [Announcement(str(i), {"paths": [str(i)]}) for i in range(len(sizes))])
        for row, size in zip(rows, sizes):
            if size:
                facts = BatchFacts(size, size, moment, moment, moment, {}, "", "", "")
                mark_ingested(conn, row, facts, [FileFacts(row.partition_key, 0, None, "")])
                keys = keys_of(row.ordinal, np.arange(size))
                copy_samples(conn, dataset_id, SampleRows(keys, np.full(size, np.datetime64(0, "us"))))
    return dataset_id, np.concatenate([keys_of(i, np.arange(size)) for i, size in enumerate(sizes)])


@pytest.mark.soak("laws-data")
def test_samples_arrive_as_they_were_sent(engine: sa.Engine) -> None:
    n = 40_000
    rng = np.random.default_rng(0)
    micro = rng.integers(-(10**16), 10**16, n)
    targets = rng.normal(size=n)
    texts = [json.dumps({"i": i, "t": "ä" * (i % 5)}, ensure_ascii=False).encode() for i in range(n)]
    offsets = np.concatenate(([0], np.cumsum([len(text) for text in texts]))).astype(np.int64)
    attributes = offsets, np.frombuffer(b"".join(texts), dtype=np.uint8)
    with transaction(engine) as conn:
        dataset_id = ensure_dataset(conn, dataset_spec()).id
        rows = SampleRows(keys_of(7, np.arange(n)), micro.astype("datetime64[us]"), np.arange(n) - 5, targets, attributes)
        copy_samples(conn, dataset_id, rows)
        found = conn.execute(sa.select(sample).order_by(sample.c.key)).all()
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert {row.dataset_id for row in found} == {dataset_id}
    assert [row.key for row in found] == [key_of(7, i) for i in range(n)]
    assert [row.time for row in found] == [epoch + timedelta(microseconds=int(value)) for value in micro]
    assert [row.label for row in found] == [i - 5 for i in range(n)]
    assert [row.target for row in found] == targets.tolist()
    assert found[4].attributes == {"i": 4, "t": "ääää"}


def test_columns_that_a_dataset_lacks_are_null(engine: sa.Engine) -> None:
    ingest(engine, [3])
    with transaction(engine) as conn:
        row = conn.execute(sa.select(sample).limit(1)).one()
    assert (row.label, row.target, row.attributes) == (None, None, None)


def stored_keys(conn: sa.Connection, dataset_id: int) -> list[int]:
    return [int(key) for chunk in iter_keys(conn, dataset_id, -1, END) for key in chunk]


def test_samples_vanish_with_their_transaction(engine: sa.Engine) -> None:
    with engine.connect() as conn:
        dataset_id = ensure_dataset(conn, dataset_spec()).id
        conn.commit()
        copy_samples(conn, dataset_id, SampleRows(keys_of(0, np.arange(5)), np.zeros(5, dtype="datetime64[us]")))
        assert len(stored_keys(conn, dataset_id)) == 5
        conn.rollback()
        assert stored_keys(conn, dataset_id) == []


@pytest.mark.parametrize("chunk", [1, 3, 4, 7, 1_000])
def test_keys_come_in_order_and_in_chunks_whatever_the_batches(engine: sa.Engine, chunk: int) -> None:
    dataset_id, keys = ingest(engine, [5, 1, 0, 8, 3])
    other, _ = ingest(engine, [2], name="e")
    windows = [(-1, END), (-1, -1), (int(keys[2]), int(keys[9])), (int(keys[4]), int(keys[5])), (int(keys[16]), END)]
    with transaction(engine) as conn:
        for after, until in windows:
            chunks = list(iter_keys(conn, dataset_id, after, until, chunk))
            expected = keys[(keys.astype(np.int64) > after) & (keys.astype(np.int64) <= until)]
            found = np.concatenate([np.empty(0, np.uint64), *chunks])
            np.testing.assert_array_equal(found, expected)
            assert found.dtype == np.uint64
            assert all(0 < len(part) <= chunk for part in chunks)
            assert len(chunks) == -(-len(expected) // chunk)
        assert len(stored_keys(conn, other)) == 2


def test_keys_come_in_order_whatever_order_their_batches_were_loaded_in(engine: sa.Engine) -> None:
    with transaction(engine) as conn:
        dataset_id = ensure_dataset(conn, dataset_spec()).id
        rows = register(conn, dataset_id, [Announcement(str(i), {"paths": [str(i)]}) for i in range(3)])
        moment = datetime(2020, 1, 1, tzinfo=UTC)
        for row in reversed(rows):
            mark_ingested(
                conn, row, BatchFacts(4, 4, moment, moment, moment, {}, "", "", ""), [FileFacts(str(row.id), 0, None, "")]
            )
            copy_samples(conn, dataset_id, SampleRows(keys_of(row.ordinal, np.arange(4)), np.zeros(4, dtype="datetime64[us]")))
        found = list(iter_keys(conn, dataset_id, -1, END, 5))
    assert [len(keys) for keys in found] == [5, 5, 2]
    np.testing.assert_array_equal(np.concatenate(found), np.concatenate([keys_of(i, np.arange(4)) for i in range(3)]))
