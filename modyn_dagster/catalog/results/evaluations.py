"""Evaluations of models: the cells of the evaluation matrix and their intervals."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from modyn_dagster.catalog.database.mapping import as_row
from modyn_dagster.catalog.tables import evaluation, trigger

_CELL: Final = ("trigger_id", "interval_start", "interval_end", "metric", "subset")
_RESULT: Final = ("n_samples", "n_deleted", "value", "undefined", "seen_in_training", "address", "low", "high")
#: Addresses looked up at once.
_CHUNK: Final = 10_000


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """A row of ``evaluation`` with the ordinal of its trigger.

    ``n_samples`` were judged; ``n_deleted`` of the interval's samples were deleted by then. Cells with equal ``address`` have
    equal values. ``subset`` says which samples of the interval were judged: empty for all, else ``attribute=value``. ``low``
    and ``high`` are the ends of the confidence interval, where there is one.
    """

    trigger_id: int
    ordinal: int
    interval_start: datetime
    interval_end: datetime
    metric: str
    n_samples: int
    value: float | None
    undefined: str | None
    seen_in_training: bool
    n_deleted: int = 0
    address: str = ""
    subset: str = ""
    low: float | None = None
    high: float | None = None
    id: int = 0


@dataclass(frozen=True, slots=True)
class CellResult:
    """What an address stands for."""

    value: float | None
    undefined: str | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class ScoredCell:
    """A defined value of one metric: which trigger's model, where, and when it was first scored."""

    ordinal: int
    interval_start: datetime
    interval_end: datetime
    metric: str
    value: float
    created_at: datetime


def record_evaluations(conn: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write cells of the evaluation matrix; one that is there takes the new value."""
    if not rows:
        return
    statement = insert(evaluation)
    updated = {name: statement.excluded[name] for name in _RESULT}
    conn.execute(statement.on_conflict_do_update(index_elements=_CELL, set_=updated), list(rows))


def remove_evaluations(conn: sa.Connection, ids: Sequence[int]) -> None:
    """Forget cells of subsets that no sample is in any more."""
    conn.execute(sa.delete(evaluation).where(evaluation.c.id.in_(ids)))


def find_addresses(conn: sa.Connection, addresses: Collection[str]) -> dict[str, CellResult]:
    """Results of cells with these addresses, whichever run computed them."""
    columns = [evaluation.c[name] for name in ("address", *CellResult.__slots__)]
    found = {}
    wanted = list(addresses)
    for begin in range(0, len(wanted), _CHUNK):
        where = evaluation.c.address == sa.any_(sa.literal(wanted[begin : begin + _CHUNK], ARRAY(sa.Text)))
        for row in conn.execute(sa.select(*columns).where(where)):
            found[row.address] = as_row(CellResult, row)
    return found


def list_evaluations(
    conn: sa.Connection, run_id: int, trigger_id: int | None = None, *, subsets: bool = False
) -> list[EvaluationRow]:
    """Cells of a run, or of one of its triggers, ordered by trigger, interval and metric; on request those of subsets too."""
    where = trigger.c.run_id == run_id
    if trigger_id is not None:
        where &= trigger.c.id == trigger_id
    if not subsets:
        where &= evaluation.c.subset == ""
    statement = sa.select(evaluation, trigger.c.ordinal).join(trigger).where(where)
    order = (trigger.c.ordinal, evaluation.c.interval_start, evaluation.c.interval_end, evaluation.c.metric, evaluation.c.subset)
    return [as_row(EvaluationRow, row) for row in conn.execute(statement.order_by(*order))]


def evaluations_of_triggers(conn: sa.Connection, trigger_ids: Sequence[int]) -> list[EvaluationRow]:
    """List the cells of some triggers, without those of subsets, ordered by trigger, interval and metric."""
    where = evaluation.c.trigger_id.in_(trigger_ids) & (evaluation.c.subset == "")
    statement = sa.select(evaluation, trigger.c.ordinal).join(trigger).where(where)
    order = (trigger.c.ordinal, evaluation.c.interval_start, evaluation.c.interval_end, evaluation.c.metric)
    return [as_row(EvaluationRow, row) for row in conn.execute(statement.order_by(*order))]


def cells_since(conn: sa.Connection, run_id: int, metric: str, since: datetime) -> list[ScoredCell]:
    """Cells of a run's evaluation matrix first scored since a moment and defined, in order of their intervals."""
    statement = sa.select(evaluation, trigger.c.ordinal).join(trigger, evaluation.c.trigger_id == trigger.c.id)
    where = (trigger.c.run_id == run_id) & (evaluation.c.metric == metric) & evaluation.c.value.is_not(None)
    where &= evaluation.c.subset == ""
    statement = statement.where(where & (evaluation.c.created_at >= since))
    rows = conn.execute(statement.order_by(evaluation.c.interval_start, trigger.c.ordinal))
    return [as_row(ScoredCell, row) for row in rows]


def list_intervals(conn: sa.Connection, run_id: int) -> list[tuple[datetime, datetime]]:
    """Start and end of every interval on which some model of a run was judged, in order of time."""
    columns = (evaluation.c.interval_start, evaluation.c.interval_end)
    statement = sa.select(*columns).join(trigger).where(trigger.c.run_id == run_id).distinct().order_by(*columns)
    return [(row.interval_start, row.interval_end) for row in conn.execute(statement)]
