"""``modyn-dagster pipeline``: replay, inspect, compare and operate pipelines."""

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modyn_dagster.cli.console import say, show_table
from modyn_dagster.cli.dagster_runs import ReplayOptions, dagster_instance, evaluate_fully, replay_range
from modyn_dagster.cli.pipeline.notify import notify
from modyn_dagster.cli.pipeline.operate import finish, reset, resume, start, stop, trigger
from modyn_dagster.cli.pipeline.status import show, status
from modyn_dagster.cli.project import open_platform
from modyn_dagster.cli.removal import remove_pipeline
from modyn_dagster.distributed.opening import named_pool
from modyn_dagster.errors import ModelsMissing, RunError, UnknownName
from modyn_dagster.imports import loading
from modyn_dagster.progress import progress_bar

if TYPE_CHECKING:
    import sqlalchemy as sa
    from dagster import DagsterInstance

    from modyn_dagster.catalog.runs import RunRow
    from modyn_dagster.pipeline.platform import Platform


@click.group()
def pipeline() -> None:
    """Replay, inspect, operate and compare pipelines."""


for command in (status, show, start, trigger, stop, resume, reset, finish, notify, remove_pipeline):
    pipeline.add_command(command)


@pipeline.command()
@click.argument("name")
@click.option("--from", "first", help="First batch (partition key); default: the first one ingested.")
@click.option("--to", "last", help="Last batch; default: the newest one ingested.")
@click.option("--name", "replay_name", default="", help="Name of the replay; the same name continues it.")
@click.option("--seed", type=click.IntRange(0), help="Seed; default: the pipeline's.")
@click.option("--restart", is_flag=True, help="Begin a new replay and leave the old one readable.")
@click.option("--manual-of", type=int, help="Run whose manual triggers are repeated at the same keys.")
@click.option("--costs-from", type=int, help="Run whose training seconds the policy gets instead of this replay's own.")
@click.option(
    "--as-if-deleted",
    is_flag=True,
    default=None,
    help="Begin a new replay as if deleted samples had never arrived; otherwise they count for decisions.",
)
@click.option("--workers", help="Processes that train and evaluate beside this one: 2, or ray:auto; default: MODYN_WORKERS.")
def replay(name: str, first: str | None, last: str | None, replay_name: str, workers: str | None, **options: Any) -> None:
    """Replay pipeline NAME over a range of batches, as a backfill of its replay asset would.

    Launched again, it continues where it stopped and trains nothing twice. The exit code is 1 when the replay fails, and 3 when
    it went on without the models of failed triggers (`on_failure: continue`).
    """
    with loading():
        from modyn_dagster.build import build_definitions
        from modyn_dagster.reporting.comparison import compare_seeds
        from modyn_dagster.reporting.tables import comparison_table
        from modyn_dagster.resources.mlflow import share_tracker

    pool = None if workers is None else named_pool(workers)
    with closing(open_platform()) as platform:
        settings = platform.settings if pool is None else replace(platform.settings, workers=pool)
        keys = batch_range(platform, name, first, last)
        left = newest_replay(platform, name, options["seed"], replay_name) if options.pop("restart") else None
        chosen = ReplayOptions(replay_name, restart_of=None if left is None else left.id, **options)
        # MLflow's process starts while this one goes on importing.
        with dagster_instance(platform.settings) as instance, share_tracker(platform.settings):
            announce_missing(instance, platform, platform.pipeline(name).dataset)
            defs = build_definitions(settings=settings)
            replay_range(defs, instance, name, keys, chosen)
        run = newest_replay(platform, name, options["seed"], replay_name)
        if run is not None:
            with platform.transaction() as conn:
                show_table(comparison_table(compare_seeds(conn, run)).rich())
                require_models(conn, run)


@pipeline.command()
@click.argument("name")
@click.option("--run", "run_id", type=int, help="Run; default: the one that stands for the pipeline.")
def matrix(name: str, run_id: int | None) -> None:
    """Evaluate every model of a run of pipeline NAME on every interval, whatever its spec says.

    Predictions and scores that exist are kept, so another call is cheap. Retention, forgetting, regret and the picture of
    the matrix need all of them.
    """
    from modyn_dagster.assets.specs import add_partitions, triggers_of
    from modyn_dagster.build import build_definitions
    from modyn_dagster.catalog.runs import choose_run, get_run
    from modyn_dagster.catalog.triggers import list_triggers

    with closing(open_platform()) as platform:
        pipeline_name = platform.pipeline(name).name
        with platform.transaction() as conn:
            run = choose_run(conn, pipeline_name) if run_id is None else get_run(conn, run_id)
            if run is None or run.pipeline != pipeline_name:
                raise RunError(f"{name} has no such run; see `modyn-dagster pipeline status {name}`")
            keys = [row.partition_key for row in list_triggers(conn, run.id) if row.state == "trained"]
        if not keys:
            raise RunError(f"{run.title} has no model yet; see `modyn-dagster pipeline status {name}`")
        title = f"evaluate {len(keys)} models of {name}"
        with dagster_instance(platform.settings) as instance, progress_bar(title, counted=False):
            # Those that a live run took over with a replay are in Dagster only after its first evaluation.
            add_partitions(instance, triggers_of(name), keys)
            evaluate_fully(build_definitions(settings=platform.settings), instance, name, keys)
        say(f"{run.title}: {len(keys)} models are evaluated on every interval; `pipeline compare --html` draws the matrix")


@pipeline.command()
@click.argument("names", nargs=-1)
@click.option("--metric", help="Metric to compare by; default: the one the pipelines name as their score.")
@click.option("--plot", type=click.Path(dir_okay=False), help="Also write score over time to this PNG file.")
@click.option(
    "--final-plot",
    type=click.Path(dir_okay=False),
    help="Also write scores as known against final ones and estimates, where labels arrive later: one PNG file for all datasets.",
)
@click.option("--html", type=click.Path(dir_okay=False), help="Also write the interactive report, one file that works offline.")
@click.option("--pages", type=click.Path(file_okay=False), help="Also write a report per pipeline into this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: a list with one comparison per dataset.")
def compare(
    names: tuple[str, ...], metric: str | None, plot: str | None, final_plot: str | None, as_json: bool, **reports: str | None
) -> None:
    """Compare pipelines NAMES (default: all) by cost and by the score of their currently active composite model.

    Pipelines are compared with those on the same dataset. With several datasets their names are added to those of the files.
    """
    from modyn_dagster.reporting.comparison import compare_pipelines
    from modyn_dagster.reporting.plots.figures import save
    from modyn_dagster.reporting.plots.late_scores import known_and_final
    from modyn_dagster.reporting.plots.runs import comparison_over_time
    from modyn_dagster.reporting.tables import comparison_table

    with closing(open_platform()) as platform:
        groups = _by_dataset(platform, names or sorted(platform.project.pipelines))
        with platform.transaction() as conn:
            compared = {dataset: compare_pipelines(conn, chosen, metric) for dataset, chosen in groups.items()}
        if as_json:
            click.echo(json.dumps([{"dataset": name} | each.to_json() for name, each in compared.items()], indent=2))
        for position, (dataset, comparison) in enumerate(compared.items()):
            if not as_json:
                click.echo("\n" * bool(position), nl=False)
                show_table(replace(comparison_table(comparison), title=dataset).rich())
            suffix = f".{dataset}" if len(groups) > 1 else ""
            if plot is not None:
                save(comparison_over_time(comparison), _named(plot, suffix))
            if any(reports.values()):
                html = None if reports["html"] is None else _named(reports["html"], suffix)
                write_reports(platform, groups[dataset], metric, html=html, pages=reports["pages"])
        if final_plot is not None:
            save(known_and_final([run for comparison in compared.values() for run in comparison.runs]), Path(final_plot))


def newest_replay(platform: "Platform", name: str, seed: int | None, replay_name: str) -> "RunRow | None":
    """Newest replay of pipeline ``name`` as it is specified now; a None seed is the pipeline's. None before the first one."""
    from modyn_dagster.catalog.runs import replay_run
    from modyn_dagster.spec.load import spec_hash

    spec = platform.pipeline(name)
    with platform.transaction() as conn:
        return replay_run(conn, spec.name, spec_hash=spec_hash(spec), seed=spec.seed if seed is None else seed, name=replay_name)


def announce_missing(instance: "DagsterInstance", platform: "Platform", dataset: str) -> None:
    """Make up for an announcement of batches that was cut off: Dagster replays only partitions that it knows."""
    from modyn_dagster.assets.samples import announce_batches
    from modyn_dagster.assets.specs import batches_of, unknown_partitions

    keys = [batch.partition_key for batch in platform.view(dataset).batches]
    if unknown_partitions(instance, batches_of(dataset), keys):
        announce_batches(instance, platform, dataset)


def require_models(conn: "sa.Connection", run: "RunRow") -> None:
    """Raise ``ModelsMissing`` for a run that went on without the models of failed triggers."""
    from modyn_dagster.catalog.triggers import list_triggers

    triggers = list_triggers(conn, run.id)
    if failed := [row for row in triggers if row.state == "failed"]:
        last = failed[-1]
        raise ModelsMissing(run.title, run.pipeline, len(failed), len(triggers), last.partition_key, last.error or "unknown")


def _by_dataset(platform: "Platform", names: Sequence[str]) -> dict[str, list[str]]:
    """Names of pipelines by dataset, both in order of appearance."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(platform.pipeline(name).dataset, []).append(name)
    return groups


def _named(path: str, suffix: str) -> Path:
    return Path(path).with_stem(Path(path).stem + suffix)


def write_reports(
    platform: "Platform", names: Sequence[str], metric: str | None, *, html: Path | None, pages: str | None
) -> None:
    """Write the comparison as one interactive page, and a page per pipeline that ran."""
    from modyn_dagster.pipeline.stages.evaluation.confusion import confusion_reader
    from modyn_dagster.reporting.page.document import write_report
    from modyn_dagster.reporting.page.records import read_report

    targets = [(html, list(names), "Comparison of pipelines")] if html is not None else []
    if pages is not None:
        targets += [(Path(pages) / f"{name}.html", [name], f"Pipeline {name}") for name in names]
    for path, pipelines, title in targets:
        with platform.transaction() as conn:
            data = read_report(conn, pipelines, title=title, metric=metric, confusion_of=confusion_reader(platform))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_report(data, path)


def batch_range(platform: "Platform", name: str, first: str | None, last: str | None) -> tuple[str, str]:
    """Partition keys of the first and last batch to replay; by default all batches that pipelines can see."""
    view = platform.view(platform.pipeline(name).dataset)
    keys = [batch.partition_key for batch in view.batches]
    if not keys:
        raise RunError(f"dataset {view.spec.name} has no ingested batch; see `modyn-dagster dataset import --help`")
    for key in (first, last):
        if key is not None and key not in keys:
            raise UnknownName("batch", key, [keys[0], "…", keys[-1]])
    return first or keys[0], last or keys[-1]
