"""The migration that brought decisions, on a database that holds a pipeline run already."""

from collections.abc import Callable

import sqlalchemy as sa

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.decisions import list_decisions, measurements_after
from modyn_dagster.catalog.timings import seconds_by_stage

_BEFORE = """
insert into dataset (name, spec) values ('d', '{}');
insert into pipeline (name, dataset_id) values ('p', 1);
insert into pipeline_spec (pipeline_id, hash, spec) values (1, 'h', '{}');
insert into pipeline_run (pipeline_id, spec_id, mode, seed, threads) values (1, 1, 'live', 0, 1);
insert into trigger (run_id, ordinal, key, point, reason) values (1, 0, 9, 9, '10 samples');
insert into measurement (run_id, point, model_hash, "values") values (1, 9, 'm', '{"": {"x": 1}}');
insert into stage_timing (run_id, trigger_id, attempt, stage, seconds) values (1, 1, 1, 'train', 2.5);
"""


def test_a_run_of_before_goes_on_with_no_decision_recorded_and_answers_to_nothing(
    upgraded_from: Callable[[str, str], sa.Engine],
) -> None:
    with transaction(upgraded_from("0002", _BEFORE)) as connection:
        assert list_decisions(connection, 1) == []
        [row] = measurements_after(connection, 1, "m", -1)
        assert (row.asked, row.values, row.details) == ("", {"": {"x": 1}}, {})
        assert seconds_by_stage(connection, 1) == {"train": 2.5}
