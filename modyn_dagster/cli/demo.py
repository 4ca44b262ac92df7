"""``modyn-dagster demo``: import, replay and compare a whole project, from an empty machine to a table and a plot."""

import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from modyn_dagster.cli.console import say, show_table
from modyn_dagster.cli.dagster_runs import ReplayOptions, compare_dataset, dagster_instance, replay_range
from modyn_dagster.cli.project import project_settings
from modyn_dagster.cli.server import running_database
from modyn_dagster.imports import loading
from modyn_dagster.progress import progress_bar
from modyn_dagster.settings import Settings

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from modyn_dagster.pipeline.platform import Platform


@click.command()
def demo() -> None:
    """Replay every pipeline of the project over its whole history and compare them.

    Starts the embedded Postgres unless a server runs, creates databases and schema, imports the files in the datasets' folders
    (one file is one batch), replays the pipelines, prints one table and writes a plot of score over time. Another run
    continues where this one stopped and trains nothing twice.
    """
    with loading():
        from modyn_dagster.spec.load import load_project

    settings = project_settings()
    # Mistakes in specs are told before anything starts.
    load_project(settings.project)
    say("starting Postgres")
    with running_database(settings):
        _run(settings)
    say("open the UIs with `make ui`: every batch, trigger and plot in Dagster, every model in MLflow")


def _run(settings: Settings) -> None:
    with loading():
        from modyn_dagster.build import build_definitions
        from modyn_dagster.cli.pipeline.replay import batch_range
        from modyn_dagster.pipeline.platform import Platform
        from modyn_dagster.resources.mlflow import share_tracker

    with closing(Platform.open(settings)) as platform:
        with dagster_instance(settings) as instance, share_tracker(settings):
            for dataset in sorted(platform.project.datasets):
                with _step(f"import {dataset}"):
                    _import(platform, instance, dataset)
            defs = build_definitions(settings=settings)
            for pipeline in sorted(platform.project.pipelines):
                with _step(f"replay {pipeline}"):
                    replay_range(defs, instance, pipeline, batch_range(platform, pipeline, None, None), ReplayOptions())
            for dataset in sorted(platform.project.datasets):
                with _step(title := f"compare the pipelines of {dataset}"), progress_bar(title, counted=False):
                    compare_dataset(defs, instance, dataset)
        for dataset in sorted(platform.project.datasets):
            _compare(platform, dataset)
        _require_models(platform)


def _require_models(platform: "Platform") -> None:
    """Raise ``ModelsMissing`` for the first pipeline whose replay went on without the models of failed triggers."""
    from modyn_dagster.catalog.runs import choose_run
    from modyn_dagster.cli.pipeline.replay import require_models

    with platform.transaction() as conn:
        runs = [choose_run(conn, name) for name in sorted(platform.project.pipelines)]
        for run in runs:
            if run is not None and run.mode == "replay":
                require_models(conn, run)


def _import(platform: "Platform", instance: "DagsterInstance", dataset: str) -> None:
    from modyn_dagster.assets.samples import announce_batches
    from modyn_dagster.ingestion.history import import_history

    spec = platform.project.datasets[dataset]
    with progress_bar(f"import {dataset}") as show:
        root = platform.project.root_of(dataset)
        summary = import_history(platform.engine, platform.home, spec, root, progress=lambda done, total, _: show(done, total))
    for _, error in summary.failed:
        say(f"failed: {error}", err=True)
    with progress_bar(f"show {dataset} in Dagster") as show:
        announce_batches(instance, platform, dataset, progress=show)


@contextmanager
def _step(title: str) -> Iterator[None]:
    """Print a title and the seconds of the block; on a terminal afterwards, where bars show what is done meanwhile."""
    begin = time.perf_counter()
    on_terminal = sys.stderr.isatty()
    if not on_terminal:
        click.echo(f"{title} ...", nl=False)
    yield
    click.echo(f"{title if on_terminal else ''} {time.perf_counter() - begin:.1f} s")


def _compare(platform: "Platform", dataset: str) -> None:
    from modyn_dagster.reporting.comparison import compare_pipelines
    from modyn_dagster.reporting.plots.figures import save
    from modyn_dagster.reporting.plots.runs import comparison_over_time
    from modyn_dagster.reporting.tables import comparison_table

    names = sorted(spec.name for spec in platform.project.pipelines.values() if spec.dataset == dataset)
    with platform.transaction() as conn:
        comparison = compare_pipelines(conn, names)
    show_table(comparison_table(comparison).rich())
    path = platform.settings.reports_folder / f"{dataset}.png"
    save(comparison_over_time(comparison), path)
    say(f"score over time: {_display_path(path)}")
    say(f"interactive report: {_display_path(path.with_suffix('.html'))}")


def _display_path(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
