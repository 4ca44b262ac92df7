"""The migration that gave cells addresses, on a database that holds cells and predictions already."""

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.results.evaluations import find_addresses, list_evaluations
from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.catalog.timings import bytes_by_trigger, seconds_by_stage

_BEFORE = """
insert into dataset (name, spec) values ('d', '{}');
insert into pipeline (name, dataset_id) values ('p', 1);
insert into pipeline_spec (pipeline_id, hash, spec) values (1, 'h', '{}');
insert into pipeline_run (pipeline_id, spec_id, mode, seed, threads) values (1, 1, 'live', 0, 1);
insert into trigger (run_id, ordinal, key, point, reason, state) values (1, 0, 9, 9, '10 samples', 'trained');
insert into prediction_file (trigger_id, model_hash, first_key, last_key, n_samples, path, checksum)
  values (1, 'm', 0, 9, 10, 'predictions/file', 'sum');
insert into evaluation (trigger_id, interval_start, interval_end, metric, n_samples, value)
  values (1, '2024-01-01', '2024-01-02', 'accuracy', 10, 0.5);
insert into stage_timing (run_id, trigger_id, stage, seconds) values (1, 1, 'evaluate', 2.5);
"""
_CELL = "insert into evaluation (trigger_id, interval_start, interval_end, metric, n_samples, value, subset{more}) values "


@pytest.fixture
def upgraded(upgraded_from: Callable[[str, str], sa.Engine]) -> sa.Engine:
    return upgraded_from("0004", _BEFORE)


def test_what_was_there_stays_and_is_known_to_follow_from_nothing_certain(upgraded: sa.Engine) -> None:
    with transaction(upgraded) as connection:
        [cell] = list_evaluations(connection, 1)
        assert (cell.value, cell.address, cell.subset, cell.low, cell.high) == (0.5, "", "", None, None)
        [file] = list_predictions(connection, 1, "m")
        assert (file.path, file.source) == ("predictions/file", "")
        assert list_predictions(connection, 1, "other") == []
        assert find_addresses(connection, ["a"]) == {}
        assert (seconds_by_stage(connection, 1), bytes_by_trigger(connection, 1)) == ({"evaluate": 2.5}, {})


def test_a_subset_has_a_cell_beside_that_of_all_samples(upgraded: sa.Engine) -> None:
    row = "(1, '2024-01-01', '2024-01-02', 'accuracy', 4, 0.25, 'school=MIT')"
    with transaction(upgraded) as connection:
        connection.exec_driver_sql(_CELL.format(more="") + row)
        assert [cell.subset for cell in list_evaluations(connection, 1)] == [""]
        assert [cell.subset for cell in list_evaluations(connection, 1, subsets=True)] == ["", "school=MIT"]
    with pytest.raises(sa.exc.IntegrityError, match="uq_evaluation_cell"), transaction(upgraded) as connection:
        connection.exec_driver_sql(_CELL.format(more="") + row)


def test_a_confidence_interval_has_both_ends_or_none(upgraded: sa.Engine) -> None:
    row = "(1, '2024-01-01', '2024-01-02', 'brier', 4, 0.25, '', 0.2)"
    with pytest.raises(sa.exc.IntegrityError, match="ck_evaluation_confidence"), transaction(upgraded) as connection:
        connection.exec_driver_sql(_CELL.format(more=", low") + row)
