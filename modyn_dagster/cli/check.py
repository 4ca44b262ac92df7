"""``modyn-dagster check``: validation of a project before any run."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import click

from modyn_dagster.cli.console import say
from modyn_dagster.cli.project import missing_project
from modyn_dagster.errors import ConfigError, DataError, ModynError
from modyn_dagster.evaluation.composite.custom import check_composite_code
from modyn_dagster.evaluation.intervals.custom import check_interval_code
from modyn_dagster.imports import import_callable
from modyn_dagster.pipeline.label_bias import label_bias_warnings
from modyn_dagster.pipeline.label_delays import check_label_arrivals, check_label_delay
from modyn_dagster.pipeline.operate.notification.command import program_path
from modyn_dagster.pipeline.operate.notification.signature import webhook_key
from modyn_dagster.pipeline.preflight import check_storage_code
from modyn_dagster.pipeline.tasks.refusals import task_errors
from modyn_dagster.reproducibility.devices import resolve_device
from modyn_dagster.selection.own.user_code import selection_code_errors
from modyn_dagster.settings import Settings
from modyn_dagster.spec.learning.device import devices_in
from modyn_dagster.spec.load import Project, load_project, read_project
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.reading.code_packages import project_code
from modyn_dagster.training.data import check_task
from modyn_dagster.training.trainers.refusals import trainer_errors
from modyn_dagster.training.user_code import import_paths
from modyn_dagster.triggering.user_code import user_code_errors


@click.command()
@click.option("--data", "with_data", is_flag=True, help="Also look at the first rows of the datasets' files.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of {source, field, row, rule, message}.")
def check(with_data: bool, as_json: bool) -> None:
    """Validate every spec of the project, import the user code they name, and build their policies, vote rules, intervals,
    composite models and statements.

    With --data the first rows of the oldest and the newest files of every dataset are read too: for columns that are missing or
    of another dtype, labels and times that cannot be used, and features that are no numbers. Nothing is registered.

    A trainer fits 100 made-up rows twice, which must give the same model.

    Reports all errors, not only the first. Ends with exit code 1 when there is one. Touches no Postgres. A GPU that this machine
    does not have is a warning: the pipeline may run on another one. So is a webhook's secret that this process cannot read, and a
    score or a performance trigger without `maturity` where labels arrive later.
    """
    folder = Settings.from_environment().project
    errors: list[ModynError] = list(project_errors(folder))
    if with_data and missing_project(folder) is None:
        errors += _data_errors(folder)
    if as_json:
        click.echo(json.dumps([_as_dict(error) for error in errors], indent=2))
        if errors:
            raise click.exceptions.Exit(1)
        return
    report_errors(errors)
    project = load_project(folder)
    for warning in [*device_warnings(project), *bias_warnings(project), *secret_warnings(project)]:
        say(f"warning: {warning}", err=True)
    say(_summary(project) + ("; the first rows of the files fit them" if with_data else ""))


def report_errors(errors: Sequence[ModynError]) -> None:
    """Print all errors; the exit code is 1 when there is one."""
    for error in errors:
        say(f"error: {error}", err=True)
    if errors:
        raise click.exceptions.Exit(1)


def project_errors(folder: Path) -> Iterator[ConfigError]:
    """Find every fault in the specs of a folder: in single files, between them, and in the user code they name."""
    if (error := missing_project(folder)) is not None:
        yield error
        return
    try:
        code = project_code(folder)
    except ConfigError as impossible:
        yield impossible
        return
    project, faults = read_project(folder, code)
    yield from faults
    for pipeline in project.pipelines.values():
        yield from _pipeline_errors(project, pipeline)


def device_warnings(project: Project) -> Iterator[ConfigError]:
    """Find devices that pipelines name and this machine does not have; torch is imported only where one is named."""
    for pipeline in project.pipelines.values():
        for field, device in devices_in(pipeline.model_dump(mode="json")):
            yield from _errors_of(partial(resolve_device, device, source=f"pipeline {pipeline.name}", field=field))


def bias_warnings(project: Project) -> Iterator[ConfigError]:
    """Find scores and triggers that the delay of labels may bias."""
    for pipeline in project.pipelines.values():
        yield from label_bias_warnings(pipeline, project.datasets[pipeline.dataset])


def secret_warnings(project: Project) -> Iterator[ConfigError]:
    """Find secrets of webhooks that this process cannot read; those that deliver may run elsewhere."""
    for pipeline in project.pipelines.values():
        if pipeline.notify is not None and pipeline.notify.webhook is not None:
            yield from _errors_of(partial(webhook_key, pipeline.notify.webhook, f"pipeline {pipeline.name}"))


def _data_errors(folder: Path) -> Iterator[ModynError]:
    from modyn_dagster.cli.check_data import data_errors

    with suppress(ConfigError):
        project, _ = read_project(folder, project_code(folder))
        yield from data_errors(project)


def _pipeline_errors(project: Project, pipeline: PipelineSpec) -> Iterator[ConfigError]:
    source = f"pipeline {pipeline.name}"
    notify = pipeline.notify
    hooks = [("notify.hook", notify.hook)] if notify is not None and notify.hook is not None else []
    missing: list[ConfigError] = []
    for field, path in [*import_paths(pipeline.training), *hooks]:
        missing += _errors_of(partial(import_callable, path, source=source, field=field))
    yield from missing
    if notify is not None and notify.command is not None:
        yield from _errors_of(partial(program_path, notify.command, project.folder, source=source))
    yield from user_code_errors(pipeline.trigger, source=source)
    yield from selection_code_errors(pipeline.selection, source=source)
    yield from _errors_of(partial(check_interval_code, pipeline.evaluation.intervals, source=source))
    yield from _errors_of(partial(check_composite_code, pipeline.evaluation.composite, source=source))
    yield from _errors_of(partial(check_storage_code, pipeline.model_store, source=source))
    dataset = project.datasets[pipeline.dataset]
    yield from _errors_of(partial(check_label_arrivals, pipeline, dataset))
    label = dataset.label
    if label is None:
        yield ConfigError(source, "dataset", pipeline.dataset, "has no label; training needs one")
    else:
        yield from _errors_of(partial(check_task, pipeline.training, label.kind, source=source))
        yield from _errors_of(partial(check_label_delay, pipeline, dataset))
        yield from task_errors(pipeline, dataset)
    if not missing:
        yield from trainer_errors(pipeline, dataset)


def _errors_of(step: Callable[[], object]) -> Iterator[ConfigError]:
    try:
        step()
    except ConfigError as error:
        yield error


def _as_dict(error: ModynError) -> dict[str, str | int | None]:
    """An error as JSON; of a fault in data, the source is a file, the field a column and the row a number from 1."""
    if isinstance(error, DataError):
        place = {"source": error.file, "field": error.column, "row": error.row, "rule": error.message}
        return {**place, "message": str(error)}
    assert isinstance(error, ConfigError)  # noqa: S101 - there are no others; narrows the type
    return {"source": error.source, "field": error.field, "row": None, "rule": error.rule, "message": str(error)}


def _summary(project: Project) -> str:
    return f"{project.folder}: no errors (datasets: {len(project.datasets)}, pipelines: {len(project.pipelines)})"
