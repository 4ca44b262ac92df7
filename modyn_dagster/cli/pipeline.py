"""``modyn-dagster pipeline``: replay, inspect, compare, resume and finish pipelines."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from modyn_dagster.cli.launching import ReplayOptions, dagster_instance, replay_range
from modyn_dagster.errors import RunError, UnknownName
from modyn_dagster.settings import Settings

if TYPE_CHECKING:
    from rich.table import Table

    from modyn_dagster.catalog.runs import RunRow
    from modyn_dagster.pipeline.platform import Platform


@click.group()
def pipeline() -> None:
    """Replay, inspect and compare pipelines."""


@pipeline.command()
@click.argument("name")
@click.option("--from", "first", help="First batch (partition key); default: the first one ingested.")
@click.option("--to", "last", help="Last batch; default: the newest one ingested.")
@click.option("--name", "replay_name", default="", help="Name of the replay; the same name continues it.")
@click.option("--seed", type=click.IntRange(0), help="Seed; default: the pipeline's.")
@click.option("--restart", is_flag=True, help="Begin a new replay and leave the old one readable.")
def replay(name: str, first: str | None, last: str | None, replay_name: str, seed: int | None, restart: bool) -> None:
    """Replay pipeline NAME over a range of batches, as a backfill of its replay asset would.

    Launched again it continues where it stands; nothing is trained twice. Exit code 1 when the replay fails.
    """
    from modyn_dagster.build import build_definitions
    from modyn_dagster.reporting.comparison import compare_pipelines
    from modyn_dagster.reporting.tables import comparison_table

    settings = Settings.from_environment()
    platform = _platform(settings)
    keys = batch_range(platform, name, first, last)
    with dagster_instance(settings) as instance:
        defs = build_definitions(settings=settings)
        replay_range(defs, instance, name, keys, ReplayOptions(replay_name, seed, restart))
    with platform.transaction() as conn:
        _show(comparison_table(compare_pipelines(conn, [name])).rich())


@pipeline.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(name: str | None, as_json: bool) -> None:
    """Runs of pipeline NAME, or of all: where they stand, their triggers, and what waits for an operator."""
    platform = _platform(Settings.from_environment())
    rows = [_status(platform, run) for run in _runs(platform, name)]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    _show(_status_table(rows))


@pipeline.command()
@click.argument("names", nargs=-1)
@click.option("--metric", help="Metric to compare by; default: the one the pipelines call their score.")
@click.option("--plot", type=click.Path(dir_okay=False), help="Also write score over time to this PNG file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(names: tuple[str, ...], metric: str | None, plot: str | None, as_json: bool) -> None:
    """Compare pipelines NAMES (default: all) by cost and by the score of their currently active composite model."""
    from pathlib import Path

    from modyn_dagster.reporting.comparison import compare_pipelines
    from modyn_dagster.reporting.figures import save
    from modyn_dagster.reporting.plots import comparison_over_time
    from modyn_dagster.reporting.tables import comparison_table

    platform = _platform(Settings.from_environment())
    chosen = [platform.pipeline(name).name for name in names] or sorted(platform.project.pipelines)
    with platform.transaction() as conn:
        comparison = compare_pipelines(conn, chosen, metric)
    if as_json:
        click.echo(json.dumps(comparison.to_json(), indent=2))
    else:
        _show(comparison_table(comparison).rich())
    if plot is not None:
        save(comparison_over_time(comparison), Path(plot))


@pipeline.command()
@click.argument("name")
@click.option("--run", "run_id", type=int, help="Run to resume; default: the one that waits.")
def resume(name: str, run_id: int | None) -> None:
    """Let a run of pipeline NAME that stopped at a failed trigger try that trigger again.

    A live run goes on by itself; a replay is launched again afterwards.
    """
    from modyn_dagster.pipeline.attempts import resume_run

    platform = _platform(Settings.from_environment())
    waiting = [run for run in _runs(platform, name) if run.state == "waiting" and run_id in (None, run.id)]
    if not waiting:
        raise RunError(f"no run of {name} waits for an operator; see `modyn-dagster pipeline status {name}`")
    for run in waiting:
        reopened = resume_run(platform, run)
        click.echo(f"{run.title}: trigger {', '.join(row.partition_key for row in reopened)} will be trained again")


@pipeline.command()
@click.argument("name")
def finish(name: str) -> None:
    """End the live run of pipeline NAME and judge its models on the last, still open interval too."""
    from modyn_dagster.catalog.runs import live_run
    from modyn_dagster.pipeline.finish import finish_live_run

    platform = _platform(Settings.from_environment())
    with platform.transaction() as conn:
        run = live_run(conn, platform.pipeline(name).name)
    if run is None or not run.is_open:
        raise RunError(f"{name} has no open live run to finish")
    judged = list(finish_live_run(platform, run))
    click.echo(f"{run.title} is finished; {len(judged)} models were judged")


def batch_range(platform: "Platform", name: str, first: str | None, last: str | None) -> tuple[str, str]:
    """Partition keys of the first and last batch to replay; by default everything that pipelines can see."""
    view = platform.view(platform.pipeline(name).dataset)
    keys = [batch.partition_key for batch in view.batches]
    if not keys:
        raise RunError(f"dataset {view.spec.name} has no ingested batch; see `modyn-dagster dataset import --help`")
    for key in (first, last):
        if key is not None and key not in keys:
            raise UnknownName("batch", key, [keys[0], "…", keys[-1]])
    return first or keys[0], last or keys[-1]


def _platform(settings: Settings) -> "Platform":
    from modyn_dagster.pipeline.platform import Platform

    return Platform.open(settings)


def _runs(platform: "Platform", name: str | None) -> list["RunRow"]:
    from modyn_dagster.catalog.runs import list_runs

    wanted = None if name is None else platform.pipeline(name).name
    with platform.transaction() as conn:
        return list_runs(conn, wanted)


def _status(platform: "Platform", run: "RunRow") -> dict[str, Any]:
    from modyn_dagster.catalog.triggers import list_triggers

    with platform.transaction() as conn:
        triggers = list_triggers(conn, run.id)
    left = next((row for row in triggers if row.state not in ("trained", "skipped")), None)
    return {
        "pipeline": run.pipeline,
        "run": run.id,
        "mode": run.mode,
        "name": run.name,
        "seed": run.seed,
        "state": run.state,
        "last_batch_ordinal": run.last_ordinal,
        "cursor": run.cursor,
        "triggers": len(triggers),
        "open_trigger": left.partition_key if left else None,
        "open_trigger_state": left.state if left else None,
        "error": left.error if left else None,
    }


def _status_table(rows: Sequence[Mapping[str, Any]]) -> "Table":
    from rich.table import Table

    table = Table("pipeline", "run", "mode", "state", "triggers", "last batch", "open trigger")
    for row in rows:
        shown = " ".join(str(row[key]) for key in ("open_trigger", "open_trigger_state", "error") if row[key])
        mode = f"{row['mode']} {row['name']!r}" if row["name"] else row["mode"]
        table.add_row(
            row["pipeline"], str(row["run"]), mode, row["state"], str(row["triggers"]), str(row["last_batch_ordinal"]), shown
        )
    return table


def _show(table: "Table") -> None:
    from rich.console import Console

    Console().print(table)
