"""Decisions of people about promotions, which the commands of ``model`` and the job ``promotion__<pipeline>`` carry out alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from modyn_dagster.errors import ConfigError, TrackingError
from modyn_dagster.resources.mlflow import MlflowResource

if TYPE_CHECKING:
    import sqlalchemy as sa

    from modyn_dagster.catalog.runs import RunRow
    from modyn_dagster.evaluation.promotion.state import Action
    from modyn_dagster.pipeline.platform import Platform
    from modyn_dagster.pipeline.promotion.wishes import PlaceOfModel
    from modyn_dagster.reporting.mlflow.registry.aliases import AliasMoves


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """A decision that was carried out: the run afterwards, its number of changes, and sentences that say what happened."""

    run: "RunRow"
    n_changes: int
    sentences: Sequence[str]


def chosen_place(
    conn: "sa.Connection",
    platform: "Platform",
    pipeline: str | None,
    *,
    model: str | None = None,
    trigger: int | None = None,
    moment: datetime | None = None,
    run_id: int | None = None,
) -> "PlaceOfModel":
    """Find the model that a decision is about.

    Args:
        conn: to the catalog.
        platform: the project.
        pipeline: with the model; None for any, where ``model`` is given.
        model: its id or first digits, or the partition key of its trigger.
        trigger: number of its trigger.
        moment: of the clock, at which it was the champion.
        run_id: run of the pipeline; default: the open live run.

    Returns:
        Run and trigger; without model, trigger and moment the place of the champion before.

    Raises:
        ConfigError: the model is named in two ways, or several are meant.
        UnknownName: there is no such pipeline, run or model.
        RunError: there is no open live run, or it had no champion at the moment.
    """
    from modyn_dagster.catalog.runs import get_run
    from modyn_dagster.pipeline.promotion.wishes import (
        PlaceOfModel,
        champion_at,
        model_anywhere,
        model_of_run,
        run_to_promote,
    )

    ways = {"model": model, "trigger": trigger, "time": None if moment is None else moment.isoformat()}
    given = {way: value for way, value in ways.items() if value is not None}
    if len(given) > 1:
        raise ConfigError("promotion", "model", given, "must be named in one way: by its id, by its trigger, or by a time")
    if pipeline is None and model is not None:
        return model_anywhere(conn, model) if run_id is None else model_of_run(conn, get_run(conn, run_id), model)
    run = run_to_promote(conn, platform, pipeline or "", run_id)
    if moment is not None:
        return champion_at(conn, run, moment)
    return model_of_run(conn, run, model) if model is not None else PlaceOfModel(run, trigger)


def decide_by_hand(
    platform: "Platform", mlflow: MlflowResource, action: "Action", place: "PlaceOfModel", actor: str, reason: str
) -> CarriedOut:
    """Promote, reject or roll back in the name of a person, and move MLflow's aliases at once.

    Whoever serves the model by an alias need not wait for the next evaluation. Raises what ``carry_out`` does; an MLflow that is
    away is no error.
    """
    from modyn_dagster.pipeline.promotion.wishes import carry_out
    from modyn_dagster.reporting.promotion.tables import change_text

    done = carry_out(platform, action, place, actor, reason)
    if not done.events:
        return CarriedOut(done.run, 0, [f"{done.run.title}: nothing to do, that is so already"])
    changes = [change_text(event) for event in done.events]
    return CarriedOut(done.run, len(changes), [*changes, aliases_moved(platform, mlflow, done.run)])


def aliases_moved(platform: "Platform", mlflow: MlflowResource, run: "RunRow") -> str:
    """Move the aliases of a run's models in MLflow, and say in a sentence what became of them.

    They are moved, stay where a person has moved them, belong to another run, or wait for the next sync where MLflow is away.
    """
    if not mlflow.enabled:
        return "MLflow: tracking is off, so no alias was moved"
    try:
        timeout = platform.settings.mlflow_timeout
        moves = mlflow.within(timeout, lambda progress: mlflow.tracker().sync_models(platform.engine, run, progress))
    except TrackingError as error:
        again = "the next evaluation" if run.mode == "live" else "the next launch of the replay"
        return f"{error}; the change holds, and {again} moves the aliases"
    return f"MLflow: {_moves_text(moves)}"


def _moves_text(moves: "AliasMoves | None") -> str:
    if moves is None:
        return "no alias was moved; they belong to another run, whose model went live later"
    by_version: dict[str, list[str]] = {}
    for alias, version in moves.moved.items():
        by_version.setdefault(version, []).append(alias)
    moved = [f"version {version} is {' and '.join(aliases)} now" for version, aliases in by_version.items()]
    return "; ".join([*moved, *moves.drifts]) or "the aliases were there already"
