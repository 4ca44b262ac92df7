"""Batches remembered between reads: always those that a plain read gives, whatever committed or gave up meanwhile."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modyn_dagster.catalog.batches import batch, batch_versions, visible_batches
from modyn_dagster.catalog.database.engine import open_engine, transaction
from modyn_dagster.catalog.registration.batches import Announcement, register
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.data.known_batches import BatchColumns, KnownBatches
from modyn_dagster.keys import key_of
from modyn_dagster.settings import Settings
from tests.ingestion.world import dataset_spec

BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
#: A change of the batch at a place, of one that is there: nothing, one more, or new values.
CHANGES = st.lists(
    st.tuples(st.sampled_from(["ingest", "open", "fail", "delete", "purge", "remove"]), st.integers(0, 5), st.booleans()),
    max_size=12,
)


@pytest.fixture
def dataset_id(engine: sa.Engine) -> int:
    with transaction(engine) as conn:
        return ensure_dataset(conn, dataset_spec()).id


def change(conn: sa.Connection, dataset_id: int, kind: str, place: int) -> None:
    """Make one change as ingestion, a deletion, a purge or a removal does."""
    if kind in ("ingest", "open"):
        n = conn.scalar(sa.select(sa.func.coalesce(sa.func.max(batch.c.ordinal), -1) + 1)) or 0
        register(conn, dataset_id, [Announcement(f"b{n}", {"paths": [f"b{n}"]})])
        if kind == "open":
            return
        times = {"time_min": BEGIN + timedelta(days=n), "time_max": BEGIN + timedelta(days=n, microseconds=1)}
        values = {"state": "ingested", "n_samples": 2, "n_train": 1, "train_time_max": times["time_max"], **times}
        conn.execute(sa.update(batch).where(batch.c.ordinal == n).values(values))
        return
    chosen = (batch.c.dataset_id == dataset_id) & (batch.c.ordinal == place)
    match kind:
        case "fail":
            conn.execute(sa.update(batch).where(chosen & (batch.c.state == "open")).values(state="failed"))
        case "delete":
            version = batch.c.deleted_version + 1
            conn.execute(sa.update(batch).where(chosen).values(deleted_version=version, deleted_checksum="x", n_deleted=1))
        case "purge":
            conn.execute(sa.update(batch).where(chosen).values(index_path=f"{place}", index_checksum="y"))
        case "remove":
            conn.execute(sa.delete(batch).where(chosen))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CHANGES)
def test_a_second_read_gives_what_a_plain_read_gives(
    engine: sa.Engine, dataset_id: int, changes: list[tuple[str, int, bool]]
) -> None:
    known = KnownBatches()
    with transaction(engine) as conn:
        conn.execute(sa.delete(batch))
    for kind, place, commits in changes:
        with engine.connect() as conn:
            change(conn, dataset_id, kind, place)
            # Also before the end of the transaction, which may be rolled back.
            assert list(known.read(conn, dataset_id).rows) == visible_batches(conn, dataset_id)
            change(conn, dataset_id, "delete", place)
            assert list(known.read(conn, dataset_id).rows) == visible_batches(conn, dataset_id)
            conn.commit() if commits else conn.rollback()
        with transaction(engine) as conn:
            assert list(known.read(conn, dataset_id).rows) == visible_batches(conn, dataset_id)


def test_rows_that_did_not_change_are_not_read_again(engine: sa.Engine, dataset_id: int) -> None:
    known = KnownBatches()
    with transaction(engine) as conn:
        for _ in range(3):
            change(conn, dataset_id, "ingest", 0)
    with transaction(engine) as conn:
        before = known.read(conn, dataset_id)
        assert known.read(conn, dataset_id) is before
        change(conn, dataset_id, "purge", 1)
        change(conn, dataset_id, "ingest", 0)
        after = known.read(conn, dataset_id)
    same = [any(row is earlier for earlier in before.rows) for row in after.rows]
    assert same == [True, False, True, False]


def test_columns_are_the_fields_of_the_rows(engine: sa.Engine, dataset_id: int) -> None:
    with transaction(engine) as conn:
        for _ in range(3):
            change(conn, dataset_id, "ingest", 0)
        conn.execute(sa.update(batch).where(batch.c.ordinal == 1).values(n_train=0, train_time_max=None))
        found = KnownBatches().read(conn, dataset_id)
    columns = found.columns
    days = np.datetime64("2020-01-01", "us") + np.arange(3) * np.timedelta64(1, "D")
    assert columns.ordinals.tolist() == [0, 1, 2]
    assert columns.last_keys.tolist() == [key_of(ordinal, 1) for ordinal in range(3)]
    assert columns.n_train.tolist() == [1, 0, 1]
    assert (columns.first == days).all()
    assert (columns.last == days + np.timedelta64(1, "us")).all()
    assert np.isnat(columns.train_last).tolist() == [False, True, False]
    for n in range(4):
        first, rest = columns.head(n), columns.tail(n)
        assert first.ordinals.tolist() + rest.ordinals.tolist() == [0, 1, 2]
        assert first.last.tolist() == BatchColumns.of(found.rows[:n]).last.tolist()


def test_equal_versions_of_another_server_are_read_again(settings: Settings) -> None:
    """After a restore from a backup, other rows may be written by transactions and at places that there were before."""
    known, owner = KnownBatches(), open_engine(settings, "owner")
    with owner.connect() as conn:
        dataset_id = ensure_dataset(conn, dataset_spec()).id
        versions, layouts = [], []
        for layout, start in ((0, "2020-01-01"), (1, "2020-01-02")):
            # Within a transaction, rows of an emptied table have the transaction and the places of those before.
            conn.execute(sa.text("truncate batch cascade"))
            values = {"ordinal": 0, "partition_key": "b0", "source": {"paths": ["b0"]}, "state": "ingested", "layout": layout}
            conn.execute(sa.insert(batch).values(dataset_id=dataset_id, **values))
            set_start_of_server(conn, start)
            versions.append(batch_versions(conn, dataset_id))
            layouts.append(known.read(conn, dataset_id).rows[0].layout)
    owner.dispose()
    starts, rows = zip(*(version.split(";") for version in versions), strict=True)
    assert starts[0] != starts[1]
    assert rows[0] == rows[1]
    assert layouts == [0, 1]


def set_start_of_server(conn: sa.Connection, start: str) -> None:
    """Let Postgres say, until the end of the transaction, that it was started then."""
    conn.execute(sa.text("set local search_path = public, pg_catalog"))
    conn.execute(
        sa.text(
            "create or replace function public.pg_postmaster_start_time() returns timestamptz language sql "
            f"return timestamptz '{start}'"
        )
    )
