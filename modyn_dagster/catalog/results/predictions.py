"""Prediction files of models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

import numpy as np
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.database.mapping import BigInt, Default, Id, References, as_row, created_column, list_rows, table
from modyn_dagster.catalog.datasets import dataset as dataset_table
from modyn_dagster.catalog.runs import pipeline, pipeline_run
from modyn_dagster.catalog.timings import stage_timing
from modyn_dagster.catalog.triggers import partition_key, trigger
from modyn_dagster.keys import KeyArray


@dataclass(frozen=True, slots=True)
class PredictionFileRow:
    """A row of ``prediction_file``: outputs for the evaluation samples of ``first_key .. last_key``, both included.

    Attributes:
        source: dataset of the samples, and the side of its split unless it is the evaluation side; empty if not recorded.
    """

    id: Id
    trigger_id: Annotated[int, References("trigger.id")]
    model_hash: str
    first_key: BigInt
    last_key: BigInt
    n_samples: BigInt
    path: str
    checksum: str
    removed_at: datetime | None
    source: Annotated[str, Default("")] = ""


prediction_file: Final = table(
    "prediction_file",
    PredictionFileRow,
    created_column(),
    sa.UniqueConstraint("trigger_id", "model_hash", "first_key"),
    sa.Index("ix_prediction_file_model_hash", "model_hash"),
)


def record_predictions(conn: sa.Connection, values: Mapping[str, Any]) -> None:
    """Record a prediction file; predicting the same keys again gives the same bytes, so the first row stays."""
    conn.execute(insert(prediction_file).values(**values).on_conflict_do_nothing())


def list_predictions(conn: sa.Connection, trigger_id: int, model_hash: str | None = None) -> list[PredictionFileRow]:
    """Prediction files of a trigger in key order, of one model or of all it ever had."""
    where = prediction_file.c.trigger_id == trigger_id
    if model_hash is not None:
        where &= prediction_file.c.model_hash == model_hash
    return list_rows(conn, PredictionFileRow, sa.select(prediction_file).where(where).order_by(prediction_file.c.first_key))


def predictions_of_triggers(conn: sa.Connection, trigger_ids: Sequence[int]) -> list[PredictionFileRow]:
    """List the prediction files of some triggers, of all models they ever had, in key order."""
    statement = sa.select(prediction_file).where(prediction_file.c.trigger_id.in_(trigger_ids))
    return [as_row(PredictionFileRow, row) for row in conn.execute(statement.order_by(prediction_file.c.first_key))]


def predictions_holding(conn: sa.Connection, dataset: str, keys: KeyArray) -> list[tuple[str, PredictionFileRow]]:
    """List the files of predictions on a dataset that cover one of some ascending keys, with their triggers' partition keys."""
    columns = prediction_file.c
    near = columns.removed_at.is_(None) & (columns.first_key <= int(keys[-1])) & (columns.last_key >= int(keys[0]))
    owner = trigger.join(pipeline_run, trigger.c.run_id == pipeline_run.c.id).join(pipeline).join(dataset_table)
    # A file without a recorded source is one of the pipeline's own dataset.
    recorded = (columns.source == dataset) | columns.source.startswith(f"{dataset} ", autoescape=True)
    near &= recorded | ((columns.source == "") & (dataset_table.c.name == dataset))
    joined = prediction_file.join(owner, columns.trigger_id == trigger.c.id)
    statement = sa.select(prediction_file, trigger.c.run_id, trigger.c.ordinal).select_from(joined).where(near)
    found = []
    for row in conn.execute(statement.order_by(columns.trigger_id, columns.first_key)):
        first, stop = np.searchsorted(keys, np.array([row.first_key, row.last_key + 1], np.uint64))
        if first < stop:
            found.append((partition_key(row.run_id, row.ordinal), as_row(PredictionFileRow, row)))
    return found


def same_predictions(
    conn: sa.Connection, model_hash: str, source: str, first_key: int, last_key: int
) -> list[tuple[PredictionFileRow, int]]:
    """Prediction files of any trigger for these keys by a model with this hash, each with its run's id."""
    columns = prediction_file.c
    where = (columns.model_hash == model_hash) & (columns.source == source) & columns.removed_at.is_(None)
    where &= (columns.first_key == first_key) & (columns.last_key == last_key)
    statement = sa.select(prediction_file, trigger.c.run_id).join(trigger).where(where).order_by(columns.id)
    return [(as_row(PredictionFileRow, row), row.run_id) for row in conn.execute(statement)]


@dataclass(frozen=True, slots=True)
class TakenOver:
    """Predictions of a run that equal models of other runs had made, with what making them had cost those.

    Attributes:
        n_samples: predictions.
        seconds: wall time.
        n_bytes: written to disk.
    """

    n_samples: int = 0
    seconds: float = 0.0
    n_bytes: int = 0


def taken_over(conn: sa.Connection, run_id: int) -> TakenOver:
    """Predictions that a run took over: those in its files beyond those that its ledger has."""
    columns = prediction_file.c
    files = sa.select(columns.trigger_id, sa.func.sum(columns.n_samples)).join(trigger).where(trigger.c.run_id == run_id)
    held = {trigger_id: int(n) for trigger_id, n in conn.execute(files.group_by(columns.trigger_id))}
    made = _made(conn, list(held))
    taken = {t: more for t, n in held.items() if (more := n - (made[t].n_samples if t in made else 0)) > 0}
    if not taken:
        return TakenOver()
    equal = prediction_file.alias()
    same = sa.and_(*(equal.c[name] == columns[name] for name in ("model_hash", "source", "first_key", "last_key")))
    pairs = sa.select(columns.trigger_id, equal.c.trigger_id.label("maker")).join(equal, same).distinct()
    makers: dict[int, set[int]] = {}
    for trigger_id, maker in conn.execute(pairs.where(columns.trigger_id.in_(taken), equal.c.trigger_id.not_in(held))):
        makers.setdefault(trigger_id, set()).add(maker)
    cost = _made(conn, [maker for each in makers.values() for maker in each])
    seconds = n_bytes = 0.0
    for trigger_id, n in taken.items():
        known = [cost[maker] for maker in makers.get(trigger_id, ()) if maker in cost]
        share = n / max(1, sum(each.n_samples for each in known))
        seconds += share * sum(each.seconds for each in known)
        n_bytes += share * sum(each.n_bytes for each in known)
    return TakenOver(sum(taken.values()), seconds, round(n_bytes))


def _made(conn: sa.Connection, trigger_ids: Sequence[int]) -> dict[int, TakenOver]:
    """Predictions made for some triggers, by the ledger."""
    columns = stage_timing.c
    sums = (sa.func.coalesce(sa.func.sum(column), 0) for column in (columns.n_samples, columns.seconds, columns.n_bytes))
    where = columns.trigger_id.in_(trigger_ids) & (columns.stage == "evaluate")
    rows = conn.execute(sa.select(columns.trigger_id, *sums).where(where).group_by(columns.trigger_id))
    return {trigger_id: TakenOver(int(n), float(seconds), int(n_bytes)) for trigger_id, n, seconds, n_bytes in rows if n}


def replace_predictions(conn: sa.Connection, file_id: int, *, checksum: str, n_samples: int) -> None:
    """Record that a file was made again and has other bytes, as after a deletion of samples."""
    statement = sa.update(prediction_file).where(prediction_file.c.id == file_id)
    conn.execute(statement.values(checksum=checksum, n_samples=n_samples))


def mark_predictions_removed(conn: sa.Connection, ids: Sequence[int]) -> None:
    """Record that retention removed the files; the rows stay."""
    conn.execute(sa.update(prediction_file).where(prediction_file.c.id.in_(ids)).values(removed_at=sa.func.now()))


def remove_predictions(conn: sa.Connection, ids: Sequence[int]) -> None:
    """Remove rows of prediction files, so that their batches are predicted again where the model can."""
    conn.execute(sa.delete(prediction_file).where(prediction_file.c.id.in_(ids)))
