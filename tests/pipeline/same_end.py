"""Everything that two replays of a pipeline must have in common, and a second replay that finds no score of the first."""

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, cast

import sqlalchemy as sa

from modyn_dagster.catalog.results.evaluations import evaluation, list_evaluations
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.predictions import list_predictions, prediction_file
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.timings import stage_timing
from modyn_dagster.catalog.triggers import list_triggers
from modyn_dagster.distributed.protocols import Pool
from modyn_dagster.pipeline.replay.run import ReplayRequest
from modyn_dagster.pipeline.replay.walk import replay
from tests.pipeline.world import World


@dataclass(frozen=True)
class Ended:
    """End of a run: what is compared of its rows and files.

    Attributes:
        outcome: triggers, training sets, hashes of models and scores.
        trainings: architecture, losses, curve, steps and environment of each model.
        predictions: batches, checksum and form of each prediction file.
        slices: cells of slices with their addresses.
        stages: rows of the cost ledger by stage, of triggers.
        state: of the run, its cursor, last batch and policy.
    """

    outcome: dict[str, Any]
    trainings: list[Any]
    predictions: list[Any]
    slices: list[Any]
    stages: dict[str, int]
    state: tuple[Any, ...]


def end_of(world: World, run: RunRow) -> Ended:
    with world.platform.transaction() as conn:
        models, triggers = list_models(conn, run.id), list_triggers(conn, run.id)
        files = [list_predictions(conn, trigger.id) for trigger in triggers]
        cells = list_evaluations(conn, run.id, subsets=True)
        of_triggers = (stage_timing.c.run_id == run.id) & stage_timing.c.trigger_id.is_not(None)
        stages = conn.execute(sa.select(stage_timing.c.stage).where(of_triggers)).scalars()
        return Ended(
            world.outcome(run),
            [(m.architecture, m.losses, m.curve, _without_costs(m.training), m.n_samples) for m in models],
            [(f.first_key, f.last_key, f.n_samples, f.checksum, f.source) for each in files for f in each],
            [
                (
                    *(c.ordinal, c.interval_start, c.metric, c.subset, c.address, c.value, c.low, c.high, c.n_deleted),
                    *(c.n_labelled, c.final_value, c.final_labelled, c.final_arrival),
                )
                for c in cells
            ],
            dict(Counter(stages)),
            (run.state, run.cursor, run.last_ordinal, _without_spending(run.policy_state), run.previous_model),
        )


def _without_spending(state: Any) -> Any:
    """State of a policy without the seconds that a budget has counted."""
    return {name: value for name, value in state.items() if name != "spending"}


def _without_costs(training: Any) -> Any:
    """Record of a training without the seconds and the memory of its epochs."""
    return dict(training) | {"epochs": [epoch["n_samples"] for epoch in training["epochs"]]}


def replayed(world: World, pipeline: str, name: str, pool: Pool | None = None, taken: int | None = None) -> Ended:
    """Replay all batches, or so many events; then the process goes away."""
    request = ReplayRequest(pipeline, world.keys(), "dagster-run", name=name)
    events = cast("Generator[Any, None, None]", replay(world.platform, request, pool=pool))
    for _ in islice(events, taken):
        pass
    events.close()
    return end_of(world, world.run_named(pipeline, name))


def forget_evaluations(world: World) -> None:
    """Remove all scores and rows of predictions, so that a later run computes its own."""
    with world.platform.transaction() as conn:
        conn.execute(sa.delete(evaluation))
        conn.execute(sa.delete(prediction_file))


_NUMBERS = count()


def both(world: World, name: str, pool: Pool) -> tuple[Ended, Ended]:
    """Ends of a replay of one process and of another one with workers, which finds no score of the first."""
    forget_evaluations(world)
    number = next(_NUMBERS)
    alone = replayed(world, name, f"alone {number}")
    forget_evaluations(world)
    return alone, replayed(world, name, f"workers {number}", pool)
