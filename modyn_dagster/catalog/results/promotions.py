"""Promotions of a run: its gate, which moves by compare-and-set, and an event per change of a model's state."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, insert

from modyn_dagster.catalog.database.mapping import Created, Default, Id, Mark, References, list_rows, table
from modyn_dagster.catalog.triggers import partition_key, trigger
from modyn_dagster.errors import StaleRun

ModelState = Literal["candidate", "shadow", "passed", "champion", "retired", "rejected", "superseded"]


@dataclass(frozen=True, slots=True)
class GateRow:
    """A row of ``promotion_gate``: one per run whose spec has ``promotion``.

    Attributes:
        batch: ordinal of the last batch that the gate has looked at; -1 before the first.
        epoch: grows with every change; compare-and-set compares it.
        state: of the gate after that batch, as JSON.
    """

    run_id: Annotated[int, References("pipeline_run.id"), Mark.PRIMARY]
    batch: Annotated[int, Default("-1")]
    epoch: Annotated[int, Default("0")]
    state: Annotated[Mapping[str, Any], Default("{}")]


@dataclass(frozen=True, slots=True)
class PromotionRow:
    """A row of ``promotion``: one change of the state of one model.

    Attributes:
        number: position among the events of the run, from 0 on.
        trigger_id: trigger that the model is the model of.
        ordinal: of that trigger.
        model_hash: id of the model.
        before: state before; None for a model that is new.
        state: state afterwards.
        actor: ``gate``, ``rollback``, ``deletion``, or the name that a person gave.
        reason: one sentence.
        batch: ordinal of the batch after which it holds.
        time: stream time there; None where no sample has a time.
        verdict: of the test, with its bounds; None where none was made.
        manual: made by a person; a replay repeats it.
    """

    id: Id
    run_id: Annotated[int, References("pipeline_run.id")]
    number: int
    trigger_id: Annotated[int, References("trigger.id")]
    ordinal: Annotated[int, Mark.JOINED]
    model_hash: str
    before: str | None
    state: str
    actor: str
    reason: str
    batch: int
    time: datetime | None
    verdict: Annotated[Mapping[str, Any] | None, JSONB(none_as_null=True)]
    manual: Annotated[bool, Default(sa.false())]
    created_at: Created

    @property
    def partition_key(self) -> str:
        """Partition of the model's trigger."""
        return partition_key(self.run_id, self.ordinal)


promotion_gate: Final = table("promotion_gate", GateRow)
promotion: Final = table("promotion", PromotionRow, sa.UniqueConstraint("run_id", "number"))


def gate_of(conn: sa.Connection, run_id: int, *, lock: bool = False) -> GateRow:
    """Read the gate of a run; one that has looked at nothing for a run without a row."""
    statement = sa.select(promotion_gate).where(promotion_gate.c.run_id == run_id)
    found = list_rows(conn, GateRow, statement.with_for_update() if lock else statement)
    return found[0] if found else GateRow(run_id, -1, 0, {})


def move_gate(conn: sa.Connection, gate: GateRow, title: str, *, batch: int, state: Mapping[str, Any]) -> GateRow:
    """Set batch and state of a gate in one transition; ``StaleRun`` if another process moved it since it was read.

    Args:
        gate: as it was read.
        title: of the run, for the error.
        batch: ordinal of the last batch that it has looked at.
        state: afterwards.
    """
    moved = replace(gate, batch=batch, epoch=gate.epoch + 1, state=state)
    columns = promotion_gate.c
    statement = insert(promotion_gate).values(asdict(moved))
    statement = statement.on_conflict_do_update(
        index_elements=["run_id"],
        set_={"batch": batch, "epoch": gate.epoch + 1, "state": state},
        where=columns.epoch == gate.epoch,
    )
    if conn.execute(statement.returning(columns.epoch)).one_or_none() is None:
        raise StaleRun(title)
    return moved


def insert_promotions(conn: sa.Connection, run_id: int, events: Iterable[Mapping[str, Any]]) -> None:
    """Append events to those of a run; the caller moves the run's gate in the same transaction."""
    last = conn.execute(sa.select(sa.func.max(promotion.c.number)).where(promotion.c.run_id == run_id)).scalar_one()
    rows = [{"run_id": run_id, "number": number, **event} for number, event in enumerate(events, 0 if last is None else last + 1)]
    if rows:
        conn.execute(sa.insert(promotion), rows)


def list_promotions(conn: sa.Connection, run_id: int) -> list[PromotionRow]:
    """Events of a run in order."""
    statement = sa.select(promotion, trigger.c.ordinal).join(trigger, promotion.c.trigger_id == trigger.c.id)
    return list_rows(conn, PromotionRow, statement.where(promotion.c.run_id == run_id).order_by(promotion.c.number))


def states_of(events: Sequence[PromotionRow]) -> dict[int, PromotionRow]:
    """Last event of each model, by the ordinal of its trigger."""
    return {event.ordinal: event for event in events}
