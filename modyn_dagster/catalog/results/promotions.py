"""Promotions of a run: its gate, which moves by compare-and-set, and an event per change of a model's state."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, insert

from modyn_dagster.catalog.database.mapping import Created, Default, Id, Mark, References, list_rows, table
from modyn_dagster.catalog.results.models import ModelRow, find_model, model
from modyn_dagster.catalog.runs import pipeline, pipeline_run, pipeline_spec
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
        model_hash: id of the model at that time; a deletion may have made it again since.
        before: state before; None for a model that is new.
        state: state afterwards.
        actor: ``gate``, ``rollback``, ``deletion``, or the name that a person gave.
        reason: one sentence.
        batch: ordinal of the batch after which it holds.
        time: stream time there; None where no sample has a time.
        verdict: of the test, with its bounds; None where none was made.
        action: ``promote``, ``reject`` or ``rollback`` of a person, which a replay repeats; None for a change by rule, and for
            one that follows from an action.
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
    action: str | None
    created_at: Created

    @property
    def manual(self) -> bool:
        """True for an action of a person."""
        return self.action is not None

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


def follows_champion() -> sa.ColumnElement[bool]:
    """Condition on ``pipeline_spec``: the live model of a run is its champion, rather than its newest model."""
    spec = pipeline_spec.c.spec
    condition: sa.ColumnElement[bool] = spec.has_key("promotion")
    return sa.and_(condition, sa.func.coalesce(spec["live"].astext, "champion") == "champion")


def runs_with_champions(conn: sa.Connection) -> frozenset[int]:
    """Ids of the runs whose live model is their champion."""
    statement = sa.select(pipeline_run.c.id).join(pipeline_spec, pipeline_run.c.spec_id == pipeline_spec.c.id)
    return frozenset(conn.execute(statement.where(follows_champion())).scalars())


def went_live(conn: sa.Connection) -> list[PromotionRow]:
    """Events of all runs by which a model became the champion, in order."""
    statement = sa.select(promotion, trigger.c.ordinal).join(trigger, promotion.c.trigger_id == trigger.c.id)
    statement = statement.where(promotion.c.state == "champion").order_by(promotion.c.run_id, promotion.c.number)
    return list_rows(conn, PromotionRow, statement)


def live_model(conn: sa.Connection, pipeline_name: str, moment: datetime) -> ModelRow | None:
    """The live model of a pipeline at a moment, as by ``live_at``; None before the first."""
    found = live_at(conn, pipeline_name, moment)
    return None if found is None else find_model(conn, found[0])


def live_at(conn: sa.Connection, pipeline_name: str, moment: datetime) -> tuple[int, datetime] | None:
    """Trigger of the live model of a pipeline at a moment, and since when it is live; None before the first.

    It is the one that had gone live last in the live runs: the newest that they had trained by then, or where the champion of a
    run is live, the last that was promoted.
    """
    own = (pipeline.c.name == pipeline_name) & (pipeline_run.c.mode == "live")
    joined = promotion.join(pipeline_run, promotion.c.run_id == pipeline_run.c.id)
    joined = joined.join(pipeline_spec, pipeline_run.c.spec_id == pipeline_spec.c.id).join(pipeline)
    crowned = sa.select(promotion.c.trigger_id, promotion.c.created_at, promotion.c.id.label("place")).select_from(joined)
    crowned = crowned.where(own & follows_champion() & (promotion.c.state == "champion"))
    trained = sa.select(model.c.trigger_id, model.c.created_at, model.c.trigger_id.label("place"))
    trained = trained.join(trigger, model.c.trigger_id == trigger.c.id).join(pipeline_run, trigger.c.run_id == pipeline_run.c.id)
    trained = trained.join(pipeline_spec, pipeline_run.c.spec_id == pipeline_spec.c.id).join(pipeline)
    went = sa.union_all(crowned, trained.where(own & ~follows_champion())).subquery()
    last = went.c.created_at.desc(), went.c.place.desc()
    statement = sa.select(went.c.trigger_id, went.c.created_at).where(went.c.created_at <= moment)
    row = conn.execute(statement.order_by(*last).limit(1)).one_or_none()
    return None if row is None else (int(row[0]), row[1])


def served_moments(conn: sa.Connection, run_id: int) -> list[tuple[datetime, int]]:
    """Stream times at which models of a run became the champion, and the ordinals of their triggers, in order.

    The first model serves from its last training sample on: nothing had to be decided about it.
    """
    since = sa.case((promotion.c.number == 0, sa.func.coalesce(model.c.train_end, promotion.c.time)), else_=promotion.c.time)
    joined = promotion.join(trigger, promotion.c.trigger_id == trigger.c.id)
    joined = joined.outerjoin(model, model.c.trigger_id == trigger.c.id)
    statement = sa.select(since, trigger.c.ordinal).select_from(joined)
    where = (promotion.c.run_id == run_id) & (promotion.c.state == "champion") & since.is_not(None)
    return [(time, int(ordinal)) for time, ordinal in conn.execute(statement.where(where).order_by(promotion.c.number))]


@dataclass(frozen=True, slots=True)
class PromotionCounts:
    """Number of tests and of their ends in a run; a champion that came back by hand or by itself counts as rolled back."""

    tests: int
    promoted: int
    rejected: int
    superseded: int
    rolled_back: int


def promotion_counts(conn: sa.Connection, run_id: int) -> PromotionCounts:
    """Count the promotions of a run by the events of its models; the first model was not tested."""
    events = list_promotions(conn, run_id)
    ends = [event.state for event in events]
    crowned = [event for event in events if event.state == "champion" and event.before != "champion" and event.number > 0]
    back = sum(event.before == "retired" for event in crowned)
    return PromotionCounts(ends.count("shadow"), len(crowned) - back, ends.count("rejected"), ends.count("superseded"), back)
