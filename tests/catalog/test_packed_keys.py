"""Keys of deletion requests: packed and unpacked without a change, as large as they come, and kept by an upgrade."""

import json

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.catalog.database.databases import upgrade
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.removal.deletion_requests import get_request
from modyn_dagster.catalog.removal.packed_keys import pack_keys, unpack_keys
from modyn_dagster.errors import CatalogError

DAY = 1 << 32


def keys_from(numbers: list[int]) -> np.ndarray:
    return np.unique(np.array(numbers, np.uint64))


@given(st.lists(st.integers(0, 50) | st.integers(DAY, DAY + 9) | st.integers(0, 2**63 - 1)).map(keys_from))
def test_packed_keys_come_back_as_they_were(keys: np.ndarray) -> None:
    unpacked = unpack_keys(pack_keys(keys))
    assert unpacked.dtype == np.uint64
    np.testing.assert_array_equal(unpacked, keys)


@pytest.mark.soak("laws-data")
def test_five_million_scattered_keys_are_a_few_megabytes() -> None:
    keys = np.cumsum(np.random.default_rng(0).integers(1, 20, 5_000_000)).astype(np.uint64)
    packed = pack_keys(keys)
    assert len(packed) < 5_000_000
    np.testing.assert_array_equal(unpack_keys(packed), keys)


@given(st.data())
def test_other_bytes_are_refused(data: st.DataObject) -> None:
    packed = pack_keys(np.array([3, 4, 9, DAY], np.uint64))
    place = data.draw(st.integers(0, len(packed) - 1))
    damaged = data.draw(st.sampled_from([packed[:place], packed[:place] + bytes([packed[place] ^ 255]) + packed[place + 1 :]]))
    with pytest.raises(CatalogError, match="keys of a deletion request"):
        unpack_keys(damaged)


def test_an_upgrade_packs_the_keys_of_stored_requests(owner: sa.Engine) -> None:
    document = {"salt": "00", "keys": ["d7c3"], "batches": [{"ordinal": 1, "batch": "one", "ranges": [[3, 4]], "n_samples": 2}]}
    with transaction(owner) as conn:
        conn.execute(sa.text("insert into dataset (id, name, spec) overriding system value values (7, 'clicks', '{}')"))
        conn.execute(sa.text("alter table deletion_request alter keys type jsonb using 'null'::jsonb"))
        conn.execute(sa.text("drop table promotion, promotion_gate"))
        conn.execute(sa.text("alter table notification drop constraint uq_notification_run_id_event_channel"))
        conn.execute(sa.text("alter table notification drop column channel"))
        conn.execute(sa.text("alter table notification add constraint uq_notification_run_id_event unique (run_id, event)"))
        conn.execute(sa.text("alter table pipeline_run drop column champion_model, drop column hole_set_id"))
        conn.execute(sa.text("drop table hole_set"))
        conn.execute(sa.text("update alembic_version set version_num = '0106'"))
        statement = (
            "insert into deletion_request (dataset_id, keys, document) values (7, cast(:keys as jsonb), cast(:doc as jsonb))"
        )
        conn.execute(sa.text(statement), {"keys": json.dumps([DAY + 3, DAY + 4]), "doc": json.dumps(document)})
    upgrade(owner)
    with transaction(owner) as conn:
        row = get_request(conn, 1)
    assert unpack_keys(row.keys).tolist() == [DAY + 3, DAY + 4]
    assert row.document == {"salt": "00", "batches": [{"ordinal": 1, "batch": "one", "n_samples": 2}]}
