"""Facts that a disturbed history and the same one without faults have in common, as values to be compared."""

from typing import Any

import sqlalchemy as sa

from modyn_dagster.catalog.batches import list_batches
from modyn_dagster.catalog.datasets import find_dataset, sample
from modyn_dagster.catalog.decisions import list_decisions
from modyn_dagster.catalog.deletions import deletion
from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.catalog.results.training_sets import list_training_sets
from modyn_dagster.catalog.runs import RunRow, list_runs
from modyn_dagster.catalog.triggers import list_triggers
from modyn_dagster.pipeline.platform import Platform

#: Everything of it but when, how often tried, and under which numbers it is filed.
Facts = dict[str, Any]


def facts_of(platform: Platform) -> Facts:
    """The streams and runs of a project, and the models in its store."""
    with platform.transaction() as conn:
        streams = {name: _stream(conn, name) for name in sorted(platform.project.datasets)}
        runs = [_run(conn, run) for run in sorted(list_runs(conn), key=lambda run: (run.pipeline, run.mode, run.id))]
    return {"streams": streams, "runs": runs, "models": sorted(platform.model_store.list())}


def _stream(conn: sa.Connection, name: str) -> Facts:
    row = find_dataset(conn, name)
    if row is None:
        return {}
    columns = [column for column in sample.c if column is not sample.c.dataset_id]
    samples = sa.select(*columns).where(sample.c.dataset_id == row.id).order_by(sample.c.key)
    deleted = sa.select(deletion.c.key, deletion.c.purged_at.is_not(None)).where(deletion.c.dataset_id == row.id)
    return {
        "samples": [tuple(each) for each in conn.execute(samples)],
        "deleted": sorted(tuple(each) for each in conn.execute(deleted)),
        "batches": [
            (b.ordinal, b.partition_key, b.state, b.n_samples, b.time_min, b.n_deleted, b.index_checksum, b.content_checksum)
            for b in list_batches(conn, row.id)
        ],
    }


def _run(conn: sa.Connection, run: RunRow) -> Facts:
    triggers = list_triggers(conn, run.id)
    predictions = [(t.ordinal, file) for t in triggers for file in list_predictions(conn, t.id)]
    return {
        "run": (run.pipeline, run.mode, run.state, run.cursor, run.last_ordinal, dict(run.policy_state)),
        "decisions": [(d.point, d.key, d.fire, d.reason, d.score, d.threshold) for d in list_decisions(conn, run.id)],
        "triggers": [(t.ordinal, t.key, t.point, t.reason, t.state) for t in triggers],
        "training sets": [
            (s.after, s.until, s.n_samples, s.checksum, s.removed_at is None) for s in list_training_sets(conn, run.id)
        ],
        "models": [(m.ordinal, m.hash, m.previous_hash, list(m.losses), m.removed_at is None) for m in list_models(conn, run.id)],
        "predictions": sorted((n, f.first_key, f.last_key, f.checksum, f.removed_at is None) for n, f in predictions),
        "cells": [
            (c.ordinal, c.interval_start, c.interval_end, c.metric, c.n_samples, c.value, c.undefined, c.subset)
            for c in list_evaluations(conn, run.id)
        ],
    }


def differences(found: Any, expected: Any, place: str = "") -> list[str]:
    """Places at which two facts differ, with what is there and what should be."""
    if type(found) is not type(expected):
        return [f"{place}: {found!r}, expected {expected!r}"]
    if isinstance(found, dict):
        pairs = [(f"{place}/{key}", found.get(key), expected.get(key)) for key in {**found, **expected}]
    elif isinstance(found, list) and len(found) == len(expected):
        pairs = [(f"{place}/{n}", one, other) for n, (one, other) in enumerate(zip(found, expected))]
    else:
        return [] if found == expected else [f"{place}: {found!r}, expected {expected!r}"]
    return [line for where, one, other in pairs for line in differences(one, other, where)]
