"""Outcomes of runs, in values that can be compared across runs, databases and machines of one kind."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from modyn_dagster.catalog.database.mapping import metadata
from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.catalog.results.training_sets import find_training_set
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.timings import stage_timing
from modyn_dagster.catalog.triggers import list_triggers
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.selection import TrainingSet
from modyn_dagster.storage import verify_checksum

#: Ordinal, key, point, reason, score, threshold, state.
Trigger = tuple[int, int, int, str, float | None, float | None, str]
#: Ordinal of the trigger, interval, metric, samples, value, why there is none, seen in training.
Cell = tuple[int, datetime, datetime, str, int, float | None, str | None, bool]
#: Ordinal of the trigger, first and last key, checksum of the file.
Predictions = tuple[int, int, int, str]


@dataclass(frozen=True)
class Outcome:
    """Everything about a run but when it happened, how often it was tried, and under which numbers it is filed."""

    state: str
    cursor: int
    last_ordinal: int
    policy_state: Mapping[str, object]
    triggers: list[Trigger]
    training_sets: dict[int, bytes]
    models: dict[int, tuple[str, str | None, int, list[float]]]
    evaluations: list[Cell]


@dataclass(frozen=True)
class Ending:
    """State of a finished replay, with all that it and nothing else left in its database."""

    outcome: Outcome
    predictions: list[Predictions]
    rows: dict[str, int]


def ending_of(platform: Platform, run: RunRow | None) -> Ending:
    """The ending of the only replay of a database."""
    assert run is not None, "no run was ever begun"
    return Ending(outcome_of(platform, run), predictions_of(platform, run), row_counts(platform))


def outcome_of(platform: Platform, run: RunRow) -> Outcome:
    """The outcome of a run; every file it names is read and its checksum verified."""
    with platform.transaction() as conn:
        triggers = list_triggers(conn, run.id)
        found = {row.ordinal: find_training_set(conn, row.id) for row in triggers}
        models = list_models(conn, run.id)
        cells = list_evaluations(conn, run.id)
    # Those of withdrawn models have no file any more.
    sets = {ordinal: row for ordinal, row in found.items() if row is not None and row.removed_at is None}
    for row in sets.values():
        TrainingSet.open(platform.home / row.path, row.checksum).verify()
    for model in models:
        platform.models_of(platform.spec_of(run)).load(model.hash)
    return Outcome(
        run.state,
        run.cursor,
        run.last_ordinal,
        run.policy_state,
        [(t.ordinal, t.key, t.point, t.reason, t.score, t.threshold, t.state) for t in triggers],
        {ordinal: (platform.home / row.path).read_bytes() for ordinal, row in sets.items()},
        {model.ordinal: _model(model) for model in models},
        [
            (c.ordinal, c.interval_start, c.interval_end, c.metric, c.n_samples, c.value, c.undefined, c.seen_in_training)
            for c in cells
        ],
    )


def predictions_of(platform: Platform, run: RunRow) -> list[Predictions]:
    """The prediction files of a run, their checksums verified."""
    with platform.transaction() as conn:
        files = [(row.ordinal, file) for row in list_triggers(conn, run.id) for file in list_predictions(conn, row.id)]
    for _, file in files:
        verify_checksum(platform.home / file.path, file.checksum)
    return [(ordinal, file.first_key, file.last_key, file.checksum) for ordinal, file in files]


def row_counts(platform: Platform) -> dict[str, int]:
    """Rows of every table but the ledger, in which each attempt leaves its own."""
    counted = [table for table in metadata.sorted_tables if table is not stage_timing]
    with platform.transaction() as conn:
        return {table.name: conn.scalar(sa.select(sa.func.count()).select_from(table)) or 0 for table in counted}


def _model(row: ModelRow) -> tuple[str, str | None, int, list[float]]:
    return row.hash, row.previous_hash, row.n_samples, list(row.losses)
