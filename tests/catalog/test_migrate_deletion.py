"""The migration that made deletions possible, on a database that holds data already."""

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.revisions import head_revision
from modyn_dagster.catalog.tables import batch, dataset

_BEFORE = """
insert into dataset (name, spec) values ('d', '{}');
insert into batch (dataset_id, ordinal, partition_key, source) values (1, 0, 'a', '{}'), (1, 1, 'b', '{}');
"""


def test_what_was_ingested_before_has_nothing_deleted(upgraded_from: Callable[[str, str], sa.Engine]) -> None:
    columns = (batch.c.partition_key, batch.c.deleted_version, batch.c.deleted_checksum, batch.c.n_deleted)
    with transaction(upgraded_from("0001", _BEFORE)) as connection:
        rows = connection.execute(sa.select(*columns).order_by(batch.c.ordinal)).all()
        assert connection.execute(sa.select(dataset.c.name)).scalars().all() == ["d"]
    assert [tuple(row) for row in rows] == [("a", 0, None, 0), ("b", 0, None, 0)]
    assert head_revision() >= "0002"


def test_a_version_of_the_list_goes_with_its_checksum(engine: sa.Engine) -> None:
    values = {"ordinal": 0, "partition_key": "a", "source": {}}
    with transaction(engine) as connection:
        dataset_id = connection.execute(sa.insert(dataset).values(name="d", spec={}).returning(dataset.c.id)).scalar_one()
        connection.execute(sa.insert(batch).values(dataset_id=dataset_id, **values))
    for wrong in ({"deleted_version": 1}, {"deleted_checksum": "ab"}):
        with pytest.raises(sa.exc.IntegrityError, match="ck_batch_deleted_list"), transaction(engine) as connection:
            connection.execute(sa.update(batch).values(**wrong))
