"""``modyn-dagster pipeline remove`` and ``dataset remove``, and what they remove from the displays."""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from modyn_dagster.cli.dagster_runs import dagster_instance
from modyn_dagster.cli.project import open_platform
from modyn_dagster.errors import RunError, TrackingError

if TYPE_CHECKING:
    from dagster import AssetKey, DagsterInstance

    from modyn_dagster.catalog.removal.journal import Kind
    from modyn_dagster.pipeline.operate.removal.plan import RemovalPlan
    from modyn_dagster.pipeline.platform import Platform

_dry_run = click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
_yes = click.option("--yes", is_flag=True, help="Do not ask.")


@click.command("remove")
@click.argument("name")
@click.option("--rebase", is_flag=True, help="Store models that need its models again without them, instead of refusing.")
@_dry_run
@_yes
def remove_pipeline(name: str, rebase: bool, dry_run: bool, yes: bool) -> None:
    """Remove pipeline NAME for good: its runs, triggers, scores and files, and the models that no other pipeline names.

    Refused while it is live or a replay is running, and while another pipeline or model depends on it. Its file stays: with
    it, a sensor that is on begins anew. After a kill, run the command again to complete the removal.
    """
    from modyn_dagster.pipeline.operate.removal.pipelines import commit_pipeline_removal, plan_pipeline_removal

    with closing(open_platform()) as platform:
        plan = partial(plan_pipeline_removal, platform, name, rebase=rebase)
        commit = partial(commit_pipeline_removal, platform)
        if _remove(platform, "pipeline", name, plan, commit, dry_run=dry_run, yes=yes) and name in platform.project.pipelines:
            click.echo(f"stays: the file of {name} in pipelines/; delete it, or its sensor and replays begin anew")


@click.command("remove")
@click.argument("name")
@_dry_run
@_yes
def remove_dataset(name: str, dry_run: bool, yes: bool) -> None:
    """Remove dataset NAME for good: its batches, samples, indexes, shards and deletions. Its source files stay.

    Refused while a pipeline depends on it, or a batch is being ingested. Its file stays: with it, a sensor that is on registers
    all batches anew. After a kill, run the command again to complete the removal.
    """
    from modyn_dagster.pipeline.operate.removal.datasets import commit_dataset_removal, plan_dataset_removal

    with closing(open_platform()) as platform:
        plan = partial(plan_dataset_removal, platform, name)
        commit = partial(commit_dataset_removal, platform)
        if not _remove(platform, "dataset", name, plan, commit, dry_run=dry_run, yes=yes):
            return
        click.echo("stays: its source files, which are not ours")
        if name in platform.project.datasets:
            click.echo(f"stays: the file of {name} in datasets/; delete it, or its sensor and imports begin anew")


def _remove(
    platform: "Platform",
    kind: "Kind",
    name: str,
    plan_of: "Callable[[], RemovalPlan]",
    commit: "Callable[[RemovalPlan], None]",
    *,
    dry_run: bool,
    yes: bool,
) -> bool:
    """Complete an interrupted removal, or plan, show and commit one; False after a dry run."""
    from modyn_dagster.pipeline.operate.removal.completion import complete, unfinished
    from modyn_dagster.reporting.model_tables import bytes_text

    with dagster_instance(platform.settings) as instance:
        if unfinished(platform, kind, name):
            click.echo(f"{kind} {name}: an earlier removal was interrupted")
            if dry_run:
                return False
        else:
            plan = plan_of()
            _require_no_runs(instance, plan)
            click.echo(f"{kind} {name}: {plan.summary}")
            for path in plan.paths:
                click.echo(f"  {path}")
            click.echo(f"  {bytes_text(plan.n_bytes(platform.place_of))} of files; {len(plan.partitions)} partitions in Dagster")
            if dry_run:
                return False
            if not yes:
                click.confirm("Remove it for good?", abort=True)
            commit(plan)
        stays = complete(platform, kind, name, partial(_forget, platform, instance))
    click.echo(f"{kind} {name} is removed")
    for line in stays:
        click.echo(f"stays: {line}")
    return True


#: Assets of a pipeline and of a dataset, by the last part of their keys.
_ASSETS: Final = {
    "pipeline": ("training_set", "model", "evaluation", "measurement", "champion", "replay"),
    "dataset": ("samples", "comparison"),
}


def _keys(plan: "RemovalPlan") -> "list[AssetKey]":
    from dagster import AssetKey

    return [AssetKey([plan.name, asset]) for asset in _ASSETS[plan.kind]]


def _require_no_runs(instance: "DagsterInstance", plan: "RemovalPlan") -> None:
    """Raise ``RunError`` for a run in Dagster that still works on one of the assets."""
    from modyn_dagster.assets.dagster_runs import unfinished_runs

    keys = set(_keys(plan))
    for run in unfinished_runs(instance, {}):
        if keys & set(run.asset_selection or ()) or run.job_name.partition("__")[2] == plan.name:
            rule = "wait for it, or cancel it in Dagster"
            raise RunError(f"Dagster run {run.run_id} works on {plan.name}; {rule}")


def _forget(platform: "Platform", instance: "DagsterInstance", plan: "RemovalPlan") -> Iterator[str]:
    """Remove partitions and events from Dagster, experiment and registered models from MLflow; yield what stays."""
    from modyn_dagster.assets.specs import batches_of, triggers_of

    partitions = str((triggers_of if plan.kind == "pipeline" else batches_of)(plan.name).name)
    known = set(instance.get_dynamic_partitions(partitions))
    for key in plan.partitions:
        if key in known:
            instance.delete_dynamic_partition(partitions, key)
    if _began_anew(platform, plan):
        yield f"events of {plan.name} in Dagster and its experiment in MLflow: it has begun anew"
        return
    instance.wipe_assets(_keys(plan))
    yield "its runs in Dagster, in the list of runs"
    yield from forget_in_mlflow(plan)


def _began_anew(platform: "Platform", plan: "RemovalPlan") -> bool:
    from modyn_dagster.catalog.datasets import find_dataset
    from modyn_dagster.catalog.runs import list_runs

    with platform.transaction() as conn:
        return bool(list_runs(conn, plan.name)) if plan.kind == "pipeline" else find_dataset(conn, plan.name) is not None


def forget_in_mlflow(plan: "RemovalPlan") -> Iterator[str]:
    """Move the experiment to MLflow's trash and delete the registered models; where it does not answer, both stay."""
    from modyn_dagster.reporting.mlflow.client import address_of, tracking_errors
    from modyn_dagster.resources.mlflow import MlflowResource

    experiment = plan.name if plan.kind == "pipeline" else f"{plan.name}.comparison"
    registered = [plan.name, f"{plan.name}.replay"] if plan.kind == "pipeline" else []
    try:
        client = MlflowResource().client()
        with tracking_errors(address_of(client.tracking_uri)):
            found = client.get_experiment_by_name(experiment)
            if found is not None and found.lifecycle_stage != "deleted":
                client.delete_experiment(found.experiment_id)
            for name in registered:
                for model in client.search_registered_models(f"name = '{name}'", max_results=1):
                    client.delete_registered_model(model.name)
    except TrackingError as error:
        yield f"experiment {experiment} in MLflow, and its registered models if there are any: {error.reason}"
        return
    if found is not None:
        yield f"experiment {experiment} in MLflow's trash, until `mlflow gc` empties it"
