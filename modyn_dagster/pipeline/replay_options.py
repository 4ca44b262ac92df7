"""What a replay takes from other runs: recorded manual triggers and training seconds. Fixed when the replay begins."""

from collections.abc import Mapping

import sqlalchemy as sa

from modyn_dagster.catalog.runs import RunRow, get_run
from modyn_dagster.errors import RunError
from modyn_dagster.pipeline.replay_request import ReplayRequest

Options = Mapping[str, int]


def options_of(request: ReplayRequest) -> Options:
    """Ids of the runs a request names, by field; those it does not name are left out."""
    named = {"manual_of": request.manual_of, "costs_from": request.costs_from}
    return {field: run_id for field, run_id in named.items() if run_id is not None}


def require_same_dataset(conn: sa.Connection, options: Options, dataset_id: int) -> None:
    """Raise ``RunError`` for a run of another dataset, whose keys mean other samples, ``UnknownName`` for no run at all."""
    for field, run_id in options.items():
        source = get_run(conn, run_id)
        if source.dataset_id != dataset_id:
            raise RunError(f"{field}: {source.title} is a run on another dataset; name one on the same, see `pipeline status`")


def require_same_options(run: RunRow, options: Options) -> None:
    """Raise ``RunError`` when a replay that is continued is asked to take something else than it began with.

    Asked for nothing, it goes on with what it began with.
    """
    if options and dict(options) != dict(run.options):
        asked, began = (_text(each) for each in (options, run.options))
        raise RunError(f"{run.title} began with {began}, not {asked}; give it another name, or begin anew with `restart: true`")


def _text(options: Mapping[str, object]) -> str:
    return ", ".join(f"{field} {run_id}" for field, run_id in sorted(options.items())) or "no runs to take anything from"
