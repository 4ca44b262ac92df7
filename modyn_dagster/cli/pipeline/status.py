"""``modyn-dagster pipeline status`` and ``show``: state of runs, and their decisions."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from modyn_dagster.cli.console import show_table
from modyn_dagster.cli.project import open_platform
from modyn_dagster.errors import RunError, UnknownName

if TYPE_CHECKING:
    import sqlalchemy as sa

    from modyn_dagster.catalog.decisions import DecisionRow
    from modyn_dagster.catalog.runs import RunRow
    from modyn_dagster.catalog.triggers import TriggerRow
    from modyn_dagster.pipeline.platform import Platform
    from modyn_dagster.reporting.terminal import TerminalTable


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(name: str | None, as_json: bool) -> None:
    """Show the runs of pipeline NAME, or of all: state, triggers, newest decision, and triggers that wait for an operator."""
    with closing(open_platform()) as platform:
        runs = runs_of(platform, name)
        with platform.transaction() as conn:
            rows = [_status(conn, run) for run in runs]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    show_table(_status_table(rows))


@click.command()
@click.argument("name")
@click.option("--run", "run_id", type=int, help="Run to show; default: the newest live run, else the newest replay.")
@click.option("--decisions", type=click.IntRange(1), default=20, show_default=True, help="Number of newest decisions to show.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(name: str, run_id: int | None, decisions: int, as_json: bool) -> None:
    """Show the newest decisions of a run of pipeline NAME, with reason, score and threshold, and its triggers with models."""
    from modyn_dagster.catalog.decisions import list_decisions
    from modyn_dagster.catalog.results.models import list_models
    from modyn_dagster.catalog.triggers import list_triggers

    with closing(open_platform()) as platform:
        run = _choose_run(runs_of(platform, name), name, run_id)
        with platform.transaction() as conn:
            newest = list_decisions(conn, run.id, newest=decisions)
            triggers = list_triggers(conn, run.id)
            models = {row.trigger_id: row.hash for row in list_models(conn, run.id)}
            content = _status(conn, run)
    if as_json:
        content["decisions"] = [decision_json(row) for row in newest]
        content["made_triggers"] = [{**trigger_json(row), "model": models.get(row.id)} for row in triggers]
        click.echo(json.dumps(content, indent=2))
        return
    show_table(_decision_table(run, newest))
    click.echo()
    show_table(_trigger_table(run, triggers[-decisions:], len(triggers), models))


def runs_of(platform: "Platform", name: str | None) -> list["RunRow"]:
    """Runs of a pipeline, or of all; ``UnknownName`` for one that the project does not have."""
    from modyn_dagster.catalog.runs import list_runs

    pipeline = None if name is None else platform.pipeline(name).name
    with platform.transaction() as conn:
        return list_runs(conn, pipeline)


def decision_json(row: "DecisionRow") -> dict[str, Any]:
    """A decision as JSON."""
    return {
        "point": row.point,
        "key": row.key,
        "time": row.time.isoformat(),
        "fire": row.fire,
        "reason": row.reason,
        "score": row.score,
        "threshold": row.threshold,
        "details": dict(row.details),
    }


def trigger_json(row: "TriggerRow") -> dict[str, Any]:
    """A trigger as JSON."""
    fields = ("partition_key", "key", "reason", "manual", "score", "threshold", "state", "attempt", "error")
    return {field: getattr(row, field) for field in fields}


def _choose_run(runs: Sequence["RunRow"], name: str, run_id: int | None) -> "RunRow":
    if run_id is not None:
        for run in runs:
            if run.id == run_id:
                return run
        raise UnknownName(f"run of {name} with id", run_id, [str(run.id) for run in runs][-5:])
    live = [run for run in runs if run.mode == "live"]
    if not runs:
        raise RunError(f"{name} has not run yet; launch `modyn-dagster pipeline replay {name}` or switch on its sensor")
    return (live or runs)[-1]


def _status(conn: "sa.Connection", run: "RunRow") -> dict[str, Any]:
    from modyn_dagster.catalog.decisions import list_decisions
    from modyn_dagster.catalog.removal.hole_sets import count_holes
    from modyn_dagster.catalog.triggers import list_triggers

    triggers = list_triggers(conn, run.id)
    newest = list_decisions(conn, run.id, newest=1)
    unfinished = next((row for row in triggers if row.state not in ("trained", "skipped")), None)
    return {
        "pipeline": run.pipeline,
        "run": run.id,
        "mode": run.mode,
        "name": run.name,
        "seed": run.seed,
        "state": run.state,
        "last_batch_ordinal": run.last_ordinal if run.last_ordinal >= 0 else None,
        "cursor": run.cursor,
        "options": dict(run.options),
        "holes": count_holes(conn, run.hole_set_id),
        "triggers": len(triggers),
        "failed_triggers": sum(row.state == "failed" for row in triggers),
        "open_trigger": unfinished.partition_key if unfinished else None,
        "open_trigger_state": unfinished.state if unfinished else None,
        "error": unfinished.error if unfinished else None,
        "newest_decision": decision_json(newest[0]) if newest else None,
        "promotion": _promotion(conn, run),
    }


def _promotion(conn: "sa.Connection", run: "RunRow") -> dict[str, Any] | None:
    """Champion and open candidates of a run; None where its pipeline promotes nothing."""
    from modyn_dagster.catalog.results.promotions import gate_of
    from modyn_dagster.catalog.triggers import partition_key
    from modyn_dagster.evaluation.promotion.state import GateState

    if run.spec.get("promotion") is None:
        return None
    state = GateState.of_json(gate_of(conn, run.id).state)
    return {
        "champion": None if state.champion is None else partition_key(run.id, state.champion),
        "champion_model": run.champion_model,
        "candidates": {partition_key(run.id, each.trigger): each.state for each in state.candidates},
    }


def _batch(ordinal: int | None) -> str:
    return "none yet" if ordinal is None else str(ordinal)


def _state(row: Mapping[str, Any]) -> str:
    """State of a run. A run that went on without the models of failed triggers is not in the state of one that did not."""
    failed = f", {row['failed_triggers']} failed" if row["failed_triggers"] else ""
    return f"{row['state']}{failed}" + (f", {row['holes']} holes" if row["holes"] else "")


def _status_table(rows: Sequence[Mapping[str, Any]]) -> "TerminalTable":
    from modyn_dagster.reporting.promotion.tables import champion_line
    from modyn_dagster.reporting.tables import Table

    cells = []
    for row in rows:
        run = f"{row['mode']} {row['run']}" + (f" {row['name']!r}" if row["name"] else "")
        numbers = str(row["triggers"]), _batch(row["last_batch_ordinal"])
        trigger = " ".join(str(row[key]) for key in ("open_trigger", "open_trigger_state", "error") if row[key])
        reason = row["newest_decision"]["reason"] if row["newest_decision"] else ""
        block = row["promotion"]
        champion = "" if block is None else champion_line(block["champion"], list(block["candidates"].values()))
        cells.append((row["pipeline"], run, _state(row), *numbers, champion, reason, trigger))
    header = ("pipeline", "run", "state", "triggers", "last batch", "champion", "newest decision", "open trigger")
    caption = "" if cells else "no pipeline has run; `modyn-dagster pipeline replay NAME` begins"
    return Table(header, tuple(cells), caption, texts=True).rich()


def _decision_table(run: "RunRow", rows: Sequence["DecisionRow"]) -> "TerminalTable":
    from modyn_dagster.reporting.tables import Table

    cells = []
    for row in rows:
        numbers = ("" if value is None else f"{value:.6g}" for value in (row.score, row.threshold))
        cells.append((f"{row.time:%Y-%m-%d %H:%M}", "train" if row.fire else "wait", *numbers, row.reason))
    header = ("time", "decision", "score", "threshold", "reason")
    return Table(header, tuple(cells), title=f"{run.title}, {run.state}", texts=True).rich()


def _trigger_table(run: "RunRow", rows: Sequence["TriggerRow"], total: int, models: Mapping[int, str]) -> "TerminalTable":
    from modyn_dagster.reporting.model_tables import SHORT
    from modyn_dagster.reporting.tables import Table

    cells = [
        (row.partition_key, models.get(row.id, "")[:SHORT], row.state, str(row.attempt), row.reason, row.error or "")
        for row in rows
    ]
    header = ("trigger", "model", "state", "attempt", "reason", "error")
    title = f"{len(rows)} of {total} triggers of {run.title}"
    return Table(header, tuple(cells), title=title, texts=True).rich()
