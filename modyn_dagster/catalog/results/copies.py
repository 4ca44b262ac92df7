"""Copies of the history of a run for another run of its pipeline: triggers with their results, decisions, and the cost ledger."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, array

from modyn_dagster.catalog.decisions import decision, measurement
from modyn_dagster.catalog.results.evaluations import evaluation
from modyn_dagster.catalog.results.models import model
from modyn_dagster.catalog.results.predictions import prediction_file
from modyn_dagster.catalog.results.promotions import promotion, promotion_gate
from modyn_dagster.catalog.results.training_sets import training_set
from modyn_dagster.catalog.timings import stage_timing
from modyn_dagster.catalog.triggers import trigger

#: Folder and number of a run at the beginning of the path of one of its files.
_RUN_FOLDER: Final = r"^([^/]+)/\d{6}/"


def path_in_run(path: str, run_id: int) -> str:
    """Path of the file of another run that has the place of this one.

    >>> path_in_run("training_sets/000003/000012.arrow", 7)
    'training_sets/000007/000012.arrow'
    """
    return re.sub(_RUN_FOLDER, rf"\g<1>/{run_id:06d}/", path)


def copy_history(conn: sa.Connection, source: int, target: int, *, scored_until: datetime | None) -> None:
    """Copy triggers with their results, promotions, decisions, measurements and timings of a run to an empty one.

    Triggers keep their ordinals; paths are those of ``path_in_run``, whose files the caller provides. Moments stay, but for
    models and promotions, which the target has from now on. MLflow shows none of the copies yet.

    Args:
        source: id of the run whose history is copied.
        target: id of the run that has none.
        scored_until: end of the last interval whose scores are copied; None to copy none.
    """
    own = sa.select(trigger).where(trigger.c.run_id == source).order_by(trigger.c.ordinal)
    _insert(conn, trigger, own, {"run_id": sa.literal(target), "mlflow_run_id": sa.null()})
    _copy_results(conn, training_set, source, target, path=_moved(training_set.c.path, target), details=_moved_state(target))
    _copy_results(conn, model, source, target, created_at=sa.func.now())
    _copy_results(conn, prediction_file, source, target, path=_moved(prediction_file.c.path, target))
    if scored_until is not None:
        _copy_results(conn, evaluation, source, target, evaluation.c.interval_end <= scored_until)
    for table in (decision, measurement):
        rows = sa.select(table).where(table.c.run_id == source).order_by(table.c.id)
        _insert(conn, table, rows, {"run_id": sa.literal(target)})
    _copy_results(conn, promotion, source, target, run_id=sa.literal(target), created_at=sa.func.now())
    _insert(
        conn, promotion_gate, sa.select(promotion_gate).where(promotion_gate.c.run_id == source), {"run_id": sa.literal(target)}
    )
    _copy_timings(conn, source, target)


def history_files(conn: sa.Connection, source: int) -> list[str]:
    """Paths of the files that rows of a run name and retention has not removed, relative to the home folder."""
    state = training_set.c.details[("state", "path")].astext
    paths: list[str] = []
    for table, columns in ((training_set, (training_set.c.path, state)), (prediction_file, (prediction_file.c.path,))):
        statement = sa.select(*columns).join(trigger, table.c.trigger_id == trigger.c.id)
        present = (trigger.c.run_id == source) & table.c.removed_at.is_(None)
        rows = conn.execute(statement.where(present).order_by(trigger.c.ordinal))
        paths += [path for row in rows for path in row if path is not None]
    return paths


def _copy_results(
    conn: sa.Connection, table: sa.Table, source: int, target: int, *conditions: sa.ColumnElement[bool], **values: Any
) -> None:
    """Copy the rows of a table that belong to triggers, to the copies of these."""
    old, new = trigger.alias(), trigger.alias()
    pairs = table.join(old, table.c.trigger_id == old.c.id)
    pairs = pairs.join(new, (new.c.run_id == target) & (new.c.ordinal == old.c.ordinal))
    order = (new.c.ordinal, *(column for column in table.primary_key if column.name == "id"))
    rows = sa.select(table).select_from(pairs).where(old.c.run_id == source, *conditions).order_by(*order)
    _insert(conn, table, rows, {"trigger_id": new.c.id, **values})


def _copy_timings(conn: sa.Connection, source: int, target: int) -> None:
    old, new = trigger.alias(), trigger.alias()
    pairs = stage_timing.outerjoin(old, stage_timing.c.trigger_id == old.c.id)
    pairs = pairs.outerjoin(new, (new.c.run_id == target) & (new.c.ordinal == old.c.ordinal))
    rows = sa.select(stage_timing).select_from(pairs).where(stage_timing.c.run_id == source).order_by(stage_timing.c.id)
    _insert(conn, stage_timing, rows, {"run_id": sa.literal(target), "trigger_id": new.c.id})


def _insert(conn: sa.Connection, table: sa.Table, rows: "sa.Select[Any]", values: Mapping[str, Any]) -> None:
    """Insert the rows of a query once more, some of their columns with other values."""
    columns = [column for column in table.c if column.name != "id"]
    chosen = rows.with_only_columns(*(values.get(column.name, column) for column in columns))
    conn.execute(sa.insert(table).from_select([column.name for column in columns], chosen))


def _moved(path: sa.ColumnElement[str], target: int) -> sa.ColumnElement[str]:
    """Move a path as ``path_in_run`` does."""
    return sa.func.regexp_replace(path, _RUN_FOLDER, rf"\1/{target:06d}/")


def _moved_state(target: int) -> sa.ColumnElement[Any]:
    """Details of training sets, with the place of the file of an online strategy's state."""
    details = training_set.c.details
    path = _moved(details[("state", "path")].astext, target)
    moved = sa.func.jsonb_set(details, array(["state", "path"]), sa.func.to_jsonb(path), type_=JSONB())
    return sa.case((details.has_key("state"), moved), else_=details)
