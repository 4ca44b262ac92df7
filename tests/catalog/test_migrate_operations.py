"""The migration that let operators stop runs and people make triggers, on a database that holds a live run already."""

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.runs import get_run, move_run
from modyn_dagster.catalog.triggers import list_triggers

_BEFORE = """
insert into dataset (name, spec) values ('d', '{}');
insert into pipeline (name, dataset_id) values ('p', 1);
insert into pipeline_spec (pipeline_id, hash, spec) values (1, 'h', '{}');
insert into pipeline_run (pipeline_id, spec_id, mode, seed, threads, state) values (1, 1, 'live', 0, 1, 'waiting');
insert into trigger (run_id, ordinal, key, point, reason, state) values (1, 0, 9, 9, '10 samples', 'trained');
insert into model (trigger_id, hash, n_samples, train_start, train_end, architecture, losses, curve)
  values (1, 'm', 10, now(), now(), '{}', '[]', '[]');
"""
_SECOND = "insert into pipeline_run (pipeline_id, spec_id, mode, seed, threads) values (1, 1, 'live', 0, 1)"


@pytest.fixture
def upgraded(upgraded_from: Callable[[str, str], sa.Engine]) -> sa.Engine:
    return upgraded_from("0003", _BEFORE)


def test_a_run_of_before_goes_on_as_it_was(upgraded: sa.Engine) -> None:
    with transaction(upgraded) as connection:
        run = get_run(connection, 1)
        assert (run.state, run.is_open, run.options) == ("waiting", True, {})
        assert [trigger.manual for trigger in list_triggers(connection, 1)] == [False]
        assert [model.seconds for model in list_models(connection, 1)] == [None]


@pytest.mark.parametrize("state", ["active", "waiting", "stopping", "stopped"])
def test_at_most_one_live_run_of_a_pipeline_is_open_stopped_or_not(upgraded: sa.Engine, state: str) -> None:
    with transaction(upgraded) as connection:
        move_run(connection, get_run(connection, 1), state=state)
    with pytest.raises(sa.exc.IntegrityError, match="uq_pipeline_run_live"), transaction(upgraded) as connection:
        connection.exec_driver_sql(_SECOND)


def test_an_unknown_state_is_refused(upgraded: sa.Engine) -> None:
    with pytest.raises(sa.exc.IntegrityError, match="ck_pipeline_run_state"), transaction(upgraded) as connection:
        move_run(connection, get_run(connection, 1), state="paused")
