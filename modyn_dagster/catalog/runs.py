"""Pipelines, their specs and their runs. A run moves by compare-and-set on its epoch and cursor."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.database.mapping import as_row
from modyn_dagster.catalog.tables import pipeline, pipeline_run, pipeline_spec
from modyn_dagster.errors import StaleRun, UnknownName

Mode = Literal["live", "replay"]

#: States of runs that go on, by themselves or after ``pipeline resume``.
OPEN: Final = ("active", "waiting", "stopping", "stopped")


@dataclass(frozen=True, slots=True)
class RunRow:
    """A row of ``pipeline_run`` with its pipeline's name and its spec."""

    id: int
    pipeline: str
    pipeline_id: int
    dataset_id: int
    spec: Mapping[str, Any]
    spec_hash: str
    mode: Mode
    name: str
    seed: int
    threads: int
    state: str
    origin: int
    cursor: int
    last_ordinal: int
    epoch: int
    policy_state: Mapping[str, Any]
    selector_state: Mapping[str, Any]
    previous_model: str | None
    mlflow_run_id: str | None
    options: Mapping[str, Any]
    created_at: datetime
    finished_at: datetime | None

    @property
    def is_open(self) -> bool:
        """Whether it can still decide, or waits for an operator to let it."""
        return self.state in OPEN

    @property
    def title(self) -> str:
        """For messages: ``live run 3 of every_10_seasons``."""
        return f"{self.mode} run {self.id} of {self.pipeline}"


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
    """The id of a pipeline; its row is created when missing, and locked until the transaction ends."""
    conn.execute(insert(pipeline).values(name=name, dataset_id=dataset_id).on_conflict_do_nothing())
    return int(conn.execute(sa.select(pipeline.c.id).where(pipeline.c.name == name).with_for_update()).scalar_one())


def ensure_spec(conn: sa.Connection, pipeline_id: int, spec_hash: str, spec: Mapping[str, Any]) -> int:
    """The id of a spec of a pipeline by its hash; appended when new."""
    values = {"pipeline_id": pipeline_id, "hash": spec_hash, "spec": spec}
    conn.execute(insert(pipeline_spec).values(values).on_conflict_do_nothing())
    where = (pipeline_spec.c.pipeline_id == pipeline_id) & (pipeline_spec.c.hash == spec_hash)
    return int(conn.execute(sa.select(pipeline_spec.c.id).where(where)).scalar_one())


def create_run(conn: sa.Connection, *, pipeline_id: int, spec_id: int, mode: Mode, **values: Any) -> RunRow:
    """A new run; ``values`` are columns of ``pipeline_run``."""
    statement = insert(pipeline_run).values(pipeline_id=pipeline_id, spec_id=spec_id, mode=mode, **values)
    run_id = conn.execute(statement.returning(pipeline_run.c.id)).scalar_one()
    return get_run(conn, run_id)


def get_run(conn: sa.Connection, run_id: int, *, lock: bool = False) -> RunRow:
    """A run by id; ``lock`` keeps others from moving it until the transaction ends."""
    statement = _RUN.where(pipeline_run.c.id == run_id)
    row = conn.execute(statement.with_for_update(of=pipeline_run) if lock else statement).one_or_none()
    if row is None:
        raise UnknownName("pipeline run", run_id)
    return as_row(RunRow, row)


def live_run(conn: sa.Connection, pipeline_name: str) -> RunRow | None:
    """The newest live run of a pipeline, open or not; at most one is open."""
    where = (pipeline.c.name == pipeline_name) & (pipeline_run.c.mode == "live")
    row = conn.execute(_RUN.where(where).order_by(pipeline_run.c.id.desc()).limit(1)).one_or_none()
    return None if row is None else as_row(RunRow, row)


def replay_run(conn: sa.Connection, pipeline_name: str, *, spec_hash: str, seed: int, name: str) -> RunRow | None:
    """The newest replay with this identity."""
    where = (
        (pipeline.c.name == pipeline_name)
        & (pipeline_run.c.mode == "replay")
        & (pipeline_spec.c.hash == spec_hash)
        & (pipeline_run.c.seed == seed)
        & (pipeline_run.c.name == name)
    )
    row = conn.execute(_RUN.where(where).order_by(pipeline_run.c.id.desc()).limit(1)).one_or_none()
    return None if row is None else as_row(RunRow, row)


def list_runs(conn: sa.Connection, pipeline_name: str | None = None) -> list[RunRow]:
    """Runs in the order they began, of one pipeline or all."""
    statement = _RUN if pipeline_name is None else _RUN.where(pipeline.c.name == pipeline_name)
    return [as_row(RunRow, row) for row in conn.execute(statement.order_by(pipeline_run.c.id))]


def choose_run(conn: sa.Connection, pipeline_name: str) -> RunRow | None:
    """The run that stands for a pipeline: the open live run, else the newest replay, else the newest live run.

    None when the pipeline never ran.
    """
    runs = list_runs(conn, pipeline_name)
    live = [run for run in runs if run.mode == "live" and run.is_open]
    replays = [run for run in runs if run.mode == "replay"]
    return next(reversed(live or replays or runs), None)


def move_run(conn: sa.Connection, run: RunRow, **values: Any) -> RunRow:
    """One transition of a run: set columns if nobody moved it since ``run`` was read, else ``StaleRun``."""
    where = (pipeline_run.c.id == run.id) & (pipeline_run.c.epoch == run.epoch) & (pipeline_run.c.cursor == run.cursor)
    moved = conn.execute(sa.update(pipeline_run).where(where).values(epoch=run.epoch + 1, **values))
    if moved.rowcount != 1:
        raise StaleRun(run.title)
    return get_run(conn, run.id)


def set_mlflow_run(conn: sa.Connection, run_id: int, mlflow_run_id: str) -> None:
    """Remember where a run is shown; not a transition."""
    conn.execute(sa.update(pipeline_run).where(pipeline_run.c.id == run_id).values(mlflow_run_id=mlflow_run_id))
