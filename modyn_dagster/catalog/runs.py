"""Pipelines, their specs and their runs. A run moves by compare-and-set on its epoch and cursor."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.database.mapping import (
    BigInt,
    Created,
    Default,
    Id,
    Mark,
    References,
    created_column,
    find_row,
    list_rows,
    table,
)
from modyn_dagster.errors import StaleRun, UnknownName

Mode = Literal["live", "replay"]

#: States of runs that go on, by themselves or after ``pipeline resume``.
OPEN: Final = ("active", "waiting", "stopping", "stopped")


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """A row of ``pipeline``."""

    id: Id
    name: Annotated[str, Mark.UNIQUE]
    dataset_id: Annotated[int, References("dataset.id")]


@dataclass(frozen=True, slots=True)
class SpecRow:
    """A row of ``pipeline_spec``: one version of a pipeline's configuration."""

    id: Id
    pipeline_id: Annotated[int, References("pipeline.id")]
    hash: str
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunRow:
    """A row of ``pipeline_run`` with its pipeline's name and its spec.

    Attributes:
        state: ``active``; ``waiting`` after a trigger failed with ``on_failure: stop``; ``stopping`` while an operator's stop
            lets the current trigger finish, then ``stopped``. Resuming leads from ``waiting`` and ``stopped`` back to
            ``active``. ``finished`` and ``ended`` (superseded) are final.
        origin: the run sees the stream after this key.
        cursor: last key that the run has decided about.
        last_ordinal: last batch handed to the run (replay: walked; live: seen by the sensor); -1 before the first.
        epoch: grows with every transition; compare-and-set compares it together with the cursor.
        options: of a replay, the runs that it takes recorded manual triggers and training seconds from; of a live run, the replay
            whose history it took over.
        hole_set_id: set of samples that the run treats as if they had never arrived; None where it counts all of them.
        champion_model: id of the champion where the spec has `promotion`; None before the first model.
    """

    id: Id
    pipeline: Annotated[str, Mark.JOINED]
    pipeline_id: Annotated[int, References("pipeline.id")]
    dataset_id: Annotated[int, Mark.JOINED]
    spec_id: Annotated[int, References("pipeline_spec.id")]
    spec: Annotated[Mapping[str, Any], Mark.JOINED]
    spec_hash: Annotated[str, Mark.JOINED]
    mode: Mode
    name: Annotated[str, Default("")]
    seed: BigInt
    threads: int
    state: Annotated[str, Default("active")]
    origin: Annotated[BigInt, Default("-1")]
    cursor: Annotated[BigInt, Default("-1")]
    last_ordinal: Annotated[int, Default("-1")]
    epoch: Annotated[int, Default("0")]
    policy_state: Annotated[Mapping[str, Any], Default("{}")]
    selector_state: Annotated[Mapping[str, Any], Default("{}")]
    previous_model: str | None
    mlflow_run_id: str | None
    options: Annotated[Mapping[str, Any], Default("{}")]
    created_at: Created
    finished_at: datetime | None
    hole_set_id: Annotated[int | None, References("hole_set.id"), Mark.APPENDED] = None
    champion_model: Annotated[str | None, Mark.APPENDED] = None

    @property
    def live_model(self) -> str | None:
        """Id of the model that serves and that measurements judge: the champion where the spec promotes, else the newest.

        Where a deletion has left no champion, it is the newest until there is one: triggers have to judge some model.
        """
        follows_champion = self.spec.get("promotion") is not None and self.spec.get("live") in (None, "champion")
        return self.champion_model or self.previous_model if follows_champion else self.previous_model

    def start_of(self, use_previous_model: object) -> str | None:
        """Id of the model that a training starts from: the newest, or with ``champion`` the champion; None with neither."""
        if not use_previous_model:
            return None
        return self.champion_model if use_previous_model == "champion" else self.previous_model

    @property
    def is_open(self) -> bool:
        """True if the run can still decide, by itself or once an operator resumes it."""
        return self.state in OPEN

    @property
    def title(self) -> str:
        """Name of the run in messages: ``live run 3 of every_10_seasons``."""
        return f"{self.mode} run {self.id} of {self.pipeline}"


pipeline: Final = table("pipeline", PipelineRow, created_column())
pipeline_spec: Final = table("pipeline_spec", SpecRow, created_column(), sa.UniqueConstraint("pipeline_id", "hash"))
pipeline_run: Final = table(
    "pipeline_run",
    RunRow,
    sa.CheckConstraint("mode in ('live', 'replay')", name="mode"),
    sa.CheckConstraint("state in ('active', 'waiting', 'stopping', 'stopped', 'finished', 'ended')", name="state"),
    sa.Index(
        "uq_pipeline_run_live",
        "pipeline_id",
        unique=True,
        postgresql_where=sa.text("mode = 'live' and state in ('active', 'waiting', 'stopping', 'stopped')"),
    ),
)

_RUN = (
    sa.select(
        pipeline_run,
        pipeline.c.name.label("pipeline"),
        pipeline.c.dataset_id,
        pipeline_spec.c.spec,
        pipeline_spec.c.hash.label("spec_hash"),
    )
    .join(pipeline, pipeline_run.c.pipeline_id == pipeline.c.id)
    .join(pipeline_spec, pipeline_run.c.spec_id == pipeline_spec.c.id)
)


def ensure_pipeline(conn: sa.Connection, name: str, dataset_id: int) -> int:
    """Create a pipeline unless it exists, and lock its row until the transaction ends; returns its id."""
    conn.execute(insert(pipeline).values(name=name, dataset_id=dataset_id).on_conflict_do_nothing())
    return int(conn.execute(sa.select(pipeline.c.id).where(pipeline.c.name == name).with_for_update()).scalar_one())


def ensure_spec(conn: sa.Connection, pipeline_id: int, spec_hash: str, spec: Mapping[str, Any]) -> int:
    """Append a spec to a pipeline unless it has one with this hash; returns its id."""
    values = {"pipeline_id": pipeline_id, "hash": spec_hash, "spec": spec}
    conn.execute(insert(pipeline_spec).values(values).on_conflict_do_nothing())
    where = (pipeline_spec.c.pipeline_id == pipeline_id) & (pipeline_spec.c.hash == spec_hash)
    return int(conn.execute(sa.select(pipeline_spec.c.id).where(where)).scalar_one())


def create_run(conn: sa.Connection, *, pipeline_id: int, spec_id: int, mode: Mode, **values: Any) -> RunRow:
    """Begin a run; ``values`` are further columns of ``pipeline_run``."""
    statement = insert(pipeline_run).values(pipeline_id=pipeline_id, spec_id=spec_id, mode=mode, **values)
    run_id = conn.execute(statement.returning(pipeline_run.c.id)).scalar_one()
    return get_run(conn, run_id)


def get_run(conn: sa.Connection, run_id: int, *, lock: bool = False) -> RunRow:
    """Read a run by id; ``lock`` keeps other processes from moving it until the transaction ends."""
    statement = _RUN.where(pipeline_run.c.id == run_id)
    run = find_row(conn, RunRow, statement.with_for_update(of=pipeline_run) if lock else statement)
    if run is None:
        raise UnknownName("pipeline run", run_id)
    return run


def hold_run(conn: sa.Connection, run_id: int) -> None:
    """Keep those who lock a run from beginning, until the transaction ends; several may hold it."""
    conn.execute(sa.select(pipeline_run.c.id).where(pipeline_run.c.id == run_id).with_for_update(read=True, key_share=True))


def live_run(conn: sa.Connection, pipeline_name: str) -> RunRow | None:
    """The newest live run of a pipeline, open or not; at most one is open."""
    where = (pipeline.c.name == pipeline_name) & (pipeline_run.c.mode == "live")
    return find_row(conn, RunRow, _RUN.where(where).order_by(pipeline_run.c.id.desc()).limit(1))


def replay_run(conn: sa.Connection, pipeline_name: str, *, spec_hash: str, seed: int, name: str) -> RunRow | None:
    """The newest replay with this identity."""
    where = (
        (pipeline.c.name == pipeline_name)
        & (pipeline_run.c.mode == "replay")
        & (pipeline_spec.c.hash == spec_hash)
        & (pipeline_run.c.seed == seed)
        & (pipeline_run.c.name == name)
    )
    return find_row(conn, RunRow, _RUN.where(where).order_by(pipeline_run.c.id.desc()).limit(1))


def list_runs(conn: sa.Connection, pipeline_name: str | None = None) -> list[RunRow]:
    """Runs in the order they began, of one pipeline or all."""
    statement = _RUN if pipeline_name is None else _RUN.where(pipeline.c.name == pipeline_name)
    return list_rows(conn, RunRow, statement.order_by(pipeline_run.c.id))


def choose_run(conn: sa.Connection, pipeline_name: str) -> RunRow | None:
    """The run that stands for a pipeline: the open live run, else the newest replay, else the newest live run.

    None when the pipeline never ran.
    """
    runs = list_runs(conn, pipeline_name)
    live = [run for run in runs if run.mode == "live" and run.is_open]
    replays = [run for run in runs if run.mode == "replay"]
    return next(reversed(live or replays or runs), None)


def move_run(conn: sa.Connection, run: RunRow, **values: Any) -> RunRow:
    """Set columns of a run in one transition; ``StaleRun`` if another process moved it since ``run`` was read."""
    where = (pipeline_run.c.id == run.id) & (pipeline_run.c.epoch == run.epoch) & (pipeline_run.c.cursor == run.cursor)
    statement = sa.update(pipeline_run).where(where).values(epoch=run.epoch + 1, **values)
    moved = conn.execute(statement.returning(pipeline_run)).mappings().one_or_none()
    if moved is None:
        raise StaleRun(run.title)
    return replace(run, **moved)


def replace_previous_model(conn: sa.Connection, run: RunRow, old: str, new: str | None) -> None:
    """Let later runs of the pipeline that are to begin with a model of ``run`` begin with another one, or afresh."""
    _replace(conn, run, pipeline_run.c.previous_model, old, new)


def replace_champion(conn: sa.Connection, run: RunRow, old: str) -> None:
    """Let later runs of the pipeline that took over a model of ``run`` as their champion have the champion that it has now."""
    new = run.previous_model if run.spec.get("promotion") is None else run.champion_model
    _replace(conn, run, pipeline_run.c.champion_model, old, new)


def _replace(conn: sa.Connection, run: RunRow, column: "sa.Column[str]", old: str, new: str | None) -> None:
    columns = pipeline_run.c
    where = (columns.pipeline_id == run.pipeline_id) & (columns.mode == run.mode) & (columns.id > run.id)
    where &= (column == old) & columns.state.in_(OPEN)
    conn.execute(sa.update(pipeline_run).where(where).values({column: new, columns.epoch: columns.epoch + 1}))


def set_mlflow_run(conn: sa.Connection, run_id: int, mlflow_run_id: str) -> None:
    """Record the MLflow run that shows a run; not a transition."""
    conn.execute(sa.update(pipeline_run).where(pipeline_run.c.id == run_id).values(mlflow_run_id=mlflow_run_id))
