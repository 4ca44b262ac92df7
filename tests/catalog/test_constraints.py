"""Constraints that keep the rows of runs, batches, cells and files consistent, whatever code writes them."""

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.batches import batch
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.results.evaluations import find_addresses, list_evaluations
from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.catalog.results.training_sets import find_training_set, list_fills, record_training_set
from modyn_dagster.catalog.runs import get_run, move_run
from modyn_dagster.catalog.timings import bytes_by_trigger, seconds_by_stage
from modyn_dagster.errors import StaleRun

_ROWS = """
insert into dataset (name, spec) values ('d', '{}');
insert into batch (dataset_id, ordinal, partition_key, source) values (1, 0, 'a', '{}');
insert into pipeline (name, dataset_id) values ('p', 1);
insert into pipeline_spec (pipeline_id, hash, spec) values (1, 'h', '{}');
insert into pipeline_run (pipeline_id, spec_id, mode, seed, threads, state) values (1, 1, 'live', 0, 1, 'waiting');
insert into trigger (run_id, ordinal, key, point, reason, state) values (1, 0, 9, 9, '10 samples', 'trained');
insert into prediction_file (trigger_id, model_hash, first_key, last_key, n_samples, path, checksum)
  values (1, 'm', 0, 9, 10, 'predictions/file', 'sum');
insert into evaluation (trigger_id, interval_start, interval_end, metric, n_samples, value)
  values (1, '2024-01-01', '2024-01-02', 'accuracy', 10, 0.5);
insert into stage_timing (run_id, trigger_id, stage, seconds) values (1, 1, 'evaluate', 2.5);
"""
_CELL = "insert into evaluation (trigger_id, interval_start, interval_end, metric, n_samples, value, subset{more}) values "
_SECOND_RUN = "insert into pipeline_run (pipeline_id, spec_id, mode, seed, threads) values (1, 1, 'live', 0, 1)"


@pytest.fixture
def filled(engine: sa.Engine) -> sa.Engine:
    """A database with one row in most tables; columns that are left out have their defaults."""
    with transaction(engine) as connection:
        connection.exec_driver_sql(_ROWS)
    return engine


def test_omitted_columns_take_their_defaults(filled: sa.Engine) -> None:
    with transaction(filled) as connection:
        run = get_run(connection, 1)
        assert (run.is_open, run.name, run.cursor, run.epoch, run.options) == (True, "", -1, 0, {})
        [cell] = list_evaluations(connection, 1)
        assert (cell.value, cell.address, cell.subset, cell.low, cell.high) == (0.5, "", "", None, None)
        [file] = list_predictions(connection, 1, "m")
        assert (file.path, file.source) == ("predictions/file", "")
        assert list_predictions(connection, 1, "other") == []
        assert find_addresses(connection, ["a"]) == {}
        assert (seconds_by_stage(connection, 1), bytes_by_trigger(connection, 1)) == ({"evaluate": 2.5}, {})


@pytest.mark.parametrize("values", [{"deleted_version": 1}, {"deleted_checksum": "ab"}])
def test_a_version_of_the_deleted_list_goes_with_its_checksum(filled: sa.Engine, values: dict[str, object]) -> None:
    with pytest.raises(sa.exc.IntegrityError, match="ck_batch_deleted_list"), transaction(filled) as connection:
        connection.execute(sa.update(batch).values(**values))


def test_a_subset_has_a_cell_beside_that_of_all_samples(filled: sa.Engine) -> None:
    row = "(1, '2024-01-01', '2024-01-02', 'accuracy', 4, 0.25, 'school=MIT')"
    with transaction(filled) as connection:
        connection.exec_driver_sql(_CELL.format(more="") + row)
        assert [cell.subset for cell in list_evaluations(connection, 1)] == [""]
        assert [cell.subset for cell in list_evaluations(connection, 1, subsets=True)] == ["", "school=MIT"]
    with pytest.raises(sa.exc.IntegrityError, match="uq_evaluation_cell"), transaction(filled) as connection:
        connection.exec_driver_sql(_CELL.format(more="") + row)


def test_a_confidence_interval_has_both_ends_or_none(filled: sa.Engine) -> None:
    row = "(1, '2024-01-01', '2024-01-02', 'brier', 4, 0.25, '', 0.2)"
    with pytest.raises(sa.exc.IntegrityError, match="ck_evaluation_confidence"), transaction(filled) as connection:
        connection.exec_driver_sql(_CELL.format(more=", low") + row)


@pytest.mark.parametrize("state", ["active", "waiting", "stopping", "stopped"])
def test_at_most_one_live_run_of_a_pipeline_is_open(filled: sa.Engine, state: str) -> None:
    with transaction(filled) as connection:
        move_run(connection, get_run(connection, 1), state=state)
    with pytest.raises(sa.exc.IntegrityError, match="uq_pipeline_run_live"), transaction(filled) as connection:
        connection.exec_driver_sql(_SECOND_RUN)


def test_an_unknown_state_of_a_run_is_refused(filled: sa.Engine) -> None:
    with pytest.raises(sa.exc.IntegrityError, match="ck_pipeline_run_state"), transaction(filled) as connection:
        move_run(connection, get_run(connection, 1), state="paused")


def test_a_moved_run_is_the_row_in_the_database_and_moves_once(filled: sa.Engine) -> None:
    with transaction(filled) as connection:
        before = get_run(connection, 1)
        moved = move_run(connection, before, cursor=9, options={"a": [1, None]})
        assert moved == get_run(connection, 1)
        assert (moved.cursor, moved.epoch, moved.pipeline) == (9, before.epoch + 1, "p")
        with pytest.raises(StaleRun):
            move_run(connection, before, cursor=10)


def test_a_training_set_of_a_later_attempt_replaces_the_first_with_its_details(filled: sa.Engine) -> None:
    values = {"after": -1, "until": 9, "n_pool": 10, "n_samples": 5, "path": "p", "checksum": "c"}
    with transaction(filled) as connection:
        record_training_set(connection, 1, values | {"details": {"fill": 0.5, "fills": [[0, 0.25], [1_500_000, 0.5]]}})
        fills = list_fills(connection, 1)
        assert [(point.time.timestamp(), point.fill, point.skipped) for point in fills] == [(0, 0.25, False), (1.5, 0.5, False)]
        assert list_fills(connection, 1, until=-1) == []
        later = record_training_set(connection, 1, values | {"n_samples": 6})
        assert later == find_training_set(connection, 1)
        assert (later.n_samples, later.details) == (6, {})
        assert list_fills(connection, 1) == []
