"""Cells of the evaluation matrix, and the intervals they cover."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from modyn_dagster.catalog.database.mapping import (
    BigInt,
    Default,
    Id,
    Mark,
    References,
    created_column,
    list_rows,
    table,
)
from modyn_dagster.catalog.triggers import trigger

_CELL: Final = ("trigger_id", "interval_start", "interval_end", "metric", "subset")
_FINAL: Final = ("final_value", "final_undefined", "final_low", "final_high", "final_labelled", "final_address", "final_arrival")
_RESULT: Final = (
    *("n_samples", "n_deleted", "value", "undefined", "seen_in_training", "address", "low", "high", "n_labelled"),
    *_FINAL,
)
#: Addresses looked up at once.
_CHUNK: Final = 10_000


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """A row of ``evaluation`` with the ordinal of its trigger.

    Attributes:
        n_samples: samples that were scored.
        value: None when undefined; then ``undefined`` is the reason.
        n_deleted: samples of the interval that were deleted by then; with ``n_samples`` it tells whether to score again.
        address: digest of model, samples, interval and metric. Cells with equal addresses have equal values; empty: unknown.
        subset: scored samples of the interval: empty for all, else ``attribute=value``.
        low, high: ends of the confidence interval, where there is one.
        n_labelled: samples with a label when the cell became known; None where labels arrive with their samples. Where they
            arrive later, ``value`` is the score as known then, and no later label changes it.
        final_value, final_undefined, final_low, final_high, final_labelled, final_address: the same with the labels that had
            arrived up to ``final_arrival``.
        final_arrival: position in the dataset's sequence of arrivals.
    """

    trigger_id: Annotated[int, References("trigger.id")]
    ordinal: Annotated[int, Mark.JOINED]
    interval_start: datetime
    interval_end: datetime
    metric: str
    n_samples: BigInt
    value: float | None
    undefined: str | None
    seen_in_training: Annotated[bool, Default(sa.false())]
    n_deleted: Annotated[BigInt, Default("0")] = 0
    address: Annotated[str, Default("")] = ""
    subset: Annotated[str, Default("")] = ""
    low: float | None = None
    high: float | None = None
    id: Id = 0
    n_labelled: Annotated[BigInt | None, Mark.APPENDED] = None
    final_value: Annotated[float | None, Mark.APPENDED] = None
    final_undefined: Annotated[str | None, Mark.APPENDED] = None
    final_low: Annotated[float | None, Mark.APPENDED] = None
    final_high: Annotated[float | None, Mark.APPENDED] = None
    final_labelled: Annotated[BigInt | None, Mark.APPENDED] = None
    final_address: Annotated[str | None, Mark.APPENDED] = None
    final_arrival: Annotated[int | None, Mark.APPENDED] = None


evaluation: Final = table(
    "evaluation",
    EvaluationRow,
    created_column(),
    sa.UniqueConstraint(*_CELL, name="uq_evaluation_cell"),
    sa.CheckConstraint("(value is null) <> (undefined is null)", name="value_or_reason"),
    sa.CheckConstraint("(low is null) = (high is null)", name="confidence"),
    sa.Index("ix_evaluation_address", "address"),
)


@dataclass(frozen=True, slots=True)
class CellResult:
    """Result of every cell with one address."""

    value: float | None
    undefined: str | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class ScoredCell:
    """A defined value of one metric for one trigger's model on one interval, and when it was first scored."""

    ordinal: int
    interval_start: datetime
    interval_end: datetime
    metric: str
    value: float
    created_at: datetime


def record_evaluations(conn: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write cells of the evaluation matrix, replacing the results of existing ones."""
    if not rows:
        return
    statement = insert(evaluation)
    updated = {name: statement.excluded[name] for name in _RESULT}
    conn.execute(statement.on_conflict_do_update(index_elements=_CELL, set_=updated), list(rows))


def remove_evaluations(conn: sa.Connection, ids: Sequence[int]) -> None:
    """Remove cells by id: those of subsets without any samples left."""
    conn.execute(sa.delete(evaluation).where(evaluation.c.id.in_(ids)))


def find_addresses(conn: sa.Connection, addresses: Collection[str]) -> dict[str, CellResult]:
    """Results of cells with these addresses, computed by any run."""
    columns = (evaluation.c.address, evaluation.c.value, evaluation.c.undefined, evaluation.c.low, evaluation.c.high)
    results = {}
    ordered = list(addresses)
    for begin in range(0, len(ordered), _CHUNK):
        where = evaluation.c.address == sa.any_(sa.literal(ordered[begin : begin + _CHUNK], ARRAY(sa.Text)))
        for address, *result in conn.execute(sa.select(*columns).where(where)):
            results[address] = CellResult(*result)
    return results


def list_evaluations(
    conn: sa.Connection, run_id: int, trigger_id: int | None = None, *, subsets: bool = False
) -> list[EvaluationRow]:
    """Cells of a run, or of one of its triggers, ordered by trigger, interval and metric; optionally those of subsets too."""
    where = trigger.c.run_id == run_id
    if trigger_id is not None:
        where &= trigger.c.id == trigger_id
    if not subsets:
        where &= evaluation.c.subset == ""
    statement = sa.select(evaluation, trigger.c.ordinal).join(trigger).where(where)
    order = (trigger.c.ordinal, evaluation.c.interval_start, evaluation.c.interval_end, evaluation.c.metric, evaluation.c.subset)
    return list_rows(conn, EvaluationRow, statement.order_by(*order))


def evaluations_of_triggers(conn: sa.Connection, trigger_ids: Sequence[int]) -> list[EvaluationRow]:
    """List the cells of some triggers, without those of subsets, ordered by trigger, interval and metric."""
    where = evaluation.c.trigger_id.in_(trigger_ids) & (evaluation.c.subset == "")
    statement = sa.select(evaluation, trigger.c.ordinal).join(trigger).where(where)
    order = (trigger.c.ordinal, evaluation.c.interval_start, evaluation.c.interval_end, evaluation.c.metric)
    return list_rows(conn, EvaluationRow, statement.order_by(*order))


def cells_since(conn: sa.Connection, run_id: int, metric: str, since: datetime) -> list[ScoredCell]:
    """Defined cells of a run's evaluation matrix that were first scored since a moment, in order of their intervals."""
    statement = sa.select(evaluation, trigger.c.ordinal).join(trigger, evaluation.c.trigger_id == trigger.c.id)
    where = (trigger.c.run_id == run_id) & (evaluation.c.metric == metric) & evaluation.c.value.is_not(None)
    where &= evaluation.c.subset == ""
    statement = statement.where(where & (evaluation.c.created_at >= since))
    return list_rows(conn, ScoredCell, statement.order_by(evaluation.c.interval_start, trigger.c.ordinal))


def list_intervals(conn: sa.Connection, run_id: int) -> list[tuple[datetime, datetime]]:
    """Start and end of every interval on which a model of a run was scored, in order of time."""
    columns = (evaluation.c.interval_start, evaluation.c.interval_end)
    statement = sa.select(*columns).join(trigger).where(trigger.c.run_id == run_id).distinct().order_by(*columns)
    return [(row.interval_start, row.interval_end) for row in conn.execute(statement)]
