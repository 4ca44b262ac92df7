"""Wishes of people about promotions, by the texts with which they name models; commands and jobs carry them out alike."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import sqlalchemy as sa

from modyn_dagster.catalog.results.models import ModelUse, model_uses
from modyn_dagster.catalog.results.promotions import list_promotions
from modyn_dagster.catalog.runs import RunRow, get_run, list_runs, live_run
from modyn_dagster.errors import ConfigError, RunError, StaleRun, UnknownName
from modyn_dagster.evaluation.promotion.history import live_periods
from modyn_dagster.evaluation.promotion.state import DELETION, GATE, ROLLBACK, Action
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.promotion.actions import Acted, act

_PARTITION_KEY: Final = re.compile(r"(\d+)-(\d+)")
_ACTORS: Final = (GATE, ROLLBACK, DELETION)


@dataclass(frozen=True, slots=True)
class PlaceOfModel:
    """A run and the ordinal of the trigger of one of its models; None for the champion before the present one."""

    run: RunRow
    trigger: int | None


def run_to_promote(conn: sa.Connection, platform: Platform, pipeline: str, run_id: int | None = None) -> RunRow:
    """Return the open live run of a pipeline, or another one of its runs by id.

    Raises:
        UnknownName: the project has no such pipeline, or that no such run.
        RunError: it has no open live run.
    """
    name = platform.pipeline(pipeline).name
    if run_id is None:
        run = live_run(conn, name)
        if run is None:
            raise RunError(f"{name} has no open live run; name another run by its id (--run)")
        return run
    runs = {run.id: run for run in list_runs(conn, name)}
    if run_id not in runs:
        raise UnknownName(f"run of {name} with id", run_id, [str(each) for each in runs][-5:])
    return runs[run_id]


def model_of_run(conn: sa.Connection, run: RunRow, text: str) -> PlaceOfModel:
    """Find a model of one run by a partition key, or an id or its first digits.

    Raises:
        UnknownName: the run has no such model.
        ConfigError: several of its models begin like this.
    """
    uses = [use for use in model_uses(conn) if use.run_id == run.id]
    found = _named(uses, text)
    if not found:
        raise UnknownName(f"model of {run.title} with the id or partition key", text, [use.partition_key for use in uses][-5:])
    return PlaceOfModel(run, found[-1].ordinal)


def model_anywhere(conn: sa.Connection, text: str) -> PlaceOfModel:
    """Find a model of an open live run by a partition key, or an id or its first digits.

    Raises:
        UnknownName: no run has such a model.
        RunError: only other runs have.
        ConfigError: several models begin like this, or several pipelines have this model.
    """
    found = _named(model_uses(conn), text)
    if not found:
        raise UnknownName("model with the id or partition key", text)
    runs = {run_id: get_run(conn, run_id) for run_id in sorted({use.run_id for use in found})}
    open_ = [run for run in runs.values() if run.mode == "live" and run.is_open]
    if not open_:
        run = list(runs.values())[-1]
        raise RunError(f"{text} is a model of {run.title}, which is no open live run; name that run by its id: --run {run.id}")
    if len(open_) > 1:
        titles = " and ".join(run.title for run in open_)
        raise ConfigError("model", "id", text, f"{titles} have this model; name the partition key of its trigger")
    return PlaceOfModel(open_[0], [use for use in found if use.run_id == open_[0].id][-1].ordinal)


def champion_at(conn: sa.Connection, run: RunRow, moment: datetime) -> PlaceOfModel:
    """Find the champion of a run at a moment of the clock; ``RunError`` where it had none."""
    for period in live_periods(list_promotions(conn, run.id)):
        if period.holds_at(moment):
            return PlaceOfModel(run, period.began.ordinal)
    raise RunError(
        f"{run.title} had no champion at {moment.isoformat()}; `modyn-dagster model history {run.pipeline}` lists them"
    )


def carry_out(platform: Platform, action: Action, place: PlaceOfModel, actor: str, reason: str) -> Acted:
    """Promote, reject or roll back, as ``act`` does, in the name of a person.

    Raises:
        ConfigError: the name is none, or that of a rule.
        RunError: whatever ``act`` refuses; and somebody else, a person or the gate, changed the promotions at the same moment.
    """
    actor = actor.strip()
    if actor in ("", *_ACTORS):
        raise ConfigError(
            "promotion", "actor", actor, f"must be the name of a person, not empty and none of {', '.join(_ACTORS)}"
        )
    try:
        return act(platform, place.run, action, place.trigger, actor, reason)
    except StaleRun as error:
        raise RunError(
            f"somebody else changed the promotions of {place.run.title} at the same moment, and this changed nothing: look at "
            f"`modyn-dagster model history {place.run.pipeline}` and try again"
        ) from error


def _named(uses: list[ModelUse], text: str) -> list[ModelUse]:
    key = _PARTITION_KEY.fullmatch(text)
    if key is not None:
        return [use for use in uses if (use.run_id, use.ordinal) == (int(key[1]), int(key[2]))]
    found = [use for use in uses if text and use.hash.startswith(text)]
    if (n := len({use.hash for use in found})) > 1:
        raise ConfigError("model", "id", text, f"must be that of one model; {n} begin like this: give more digits")
    return found
