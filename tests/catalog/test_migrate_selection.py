"""The migration that brought what a selection tells, on a database that holds training sets already."""

from collections.abc import Callable

import sqlalchemy as sa

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.results.training_sets import find_training_set, list_fills, record_training_set

_BEFORE = """
insert into dataset (name, spec) values ('d', '{}');
insert into pipeline (name, dataset_id) values ('p', 1);
insert into pipeline_spec (pipeline_id, hash, spec) values (1, 'h', '{}');
insert into pipeline_run (pipeline_id, spec_id, mode, seed, threads) values (1, 1, 'live', 0, 1);
insert into trigger (run_id, ordinal, key, point, reason) values (1, 0, 9, 9, '10 samples');
insert into training_set (trigger_id, after, until, n_pool, n_samples, path, checksum) values (1, -1, 9, 10, 10, 'p', 'c');
"""


def test_training_sets_of_before_tell_nothing_and_later_ones_how_full_the_sample_was(
    upgraded_from: Callable[[str, str], sa.Engine],
) -> None:
    with transaction(upgraded_from("0004", _BEFORE)) as connection:
        before = find_training_set(connection, 1)
        assert before is not None
        assert before.details == {}
        assert list_fills(connection, 1) == []
        values = {"after": -1, "until": 9, "n_pool": 10, "n_samples": 5, "path": "p", "checksum": "c"}
        record_training_set(connection, 1, values | {"details": {"fill": 0.5, "fills": [[0, 0.25], [1_500_000, 0.5]]}})
        fills = list_fills(connection, 1)
        assert [(point.time.timestamp(), point.fill, point.skipped) for point in fills] == [(0, 0.25, False), (1.5, 0.5, False)]
        assert list_fills(connection, 1, until=-1) == []
        record_training_set(connection, 1, values)
        assert list_fills(connection, 1) == []
