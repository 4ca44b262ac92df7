"""Facts of a run by which a live run that took over a replay is compared with one that was always there."""

from typing import Any

from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.predictions import predictions_of_triggers
from modyn_dagster.catalog.results.training_sets import list_training_sets
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.pipeline.replay.start_live import start_live
from tests.pipeline.world import World

#: Facts about the run itself; the others are rows that belong to it.
STATE = ("seed", "threads", "origin", "cursor", "last_ordinal", "policy_state", "selector_state", "previous_model", "hole_set_id")


def start(world: World, pipeline: str) -> RunRow:
    """Begin the live run of a pipeline with its newest replay."""
    return start_live(world.platform, pipeline, world.run(pipeline, "replay").id).run


def state_of(run: RunRow) -> dict[str, Any]:
    """State that a run goes on from."""
    return {name: getattr(run, name) for name in STATE}


def facts(world: World, run: RunRow) -> dict[str, Any]:
    """Facts that two equal runs have in common, whatever their numbers."""
    with world.platform.transaction() as conn:
        sets = list_training_sets(conn, run.id)
        cells = list_evaluations(conn, run.id, subsets=True)
    return world.outcome(run) | {
        "state": state_of(world.reread(run.id)),
        "decisions": world.decisions(run),
        "pools": [(row.after, row.until, row.n_pool, row.n_samples, row.time_min, row.time_max) for row in sets],
        "selector_states": [row.details["state"]["checksum"] for row in sets if "state" in row.details],
        "cells": [(c.ordinal, c.interval_start, c.metric, c.subset, c.value, c.low, c.high, c.address) for c in cells],
    }


def files_of(world: World, run: RunRow) -> list[str]:
    """Paths of the files that rows of a run name and retention has not removed."""
    with world.platform.transaction() as conn:
        sets = list_training_sets(conn, run.id)
        predictions = predictions_of_triggers(conn, [row.trigger_id for row in sets])
    states = [row.details["state"]["path"] for row in sets if "state" in row.details and row.removed_at is None]
    paths = [row.path for row in sets if row.removed_at is None] + [row.path for row in predictions if row.removed_at is None]
    return paths + states
