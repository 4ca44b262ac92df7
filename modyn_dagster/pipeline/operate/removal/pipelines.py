"""Removal of a pipeline: its runs with their triggers, scores and files, and the models that no other pipeline names."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from modyn_dagster.catalog.removal.journal import begin_removal
from modyn_dagster.catalog.removal.rows import delete_pipeline, lock_pipeline
from modyn_dagster.catalog.results.models import ModelUse, model_uses
from modyn_dagster.catalog.runs import RunRow, list_runs
from modyn_dagster.catalog.triggers import list_triggers
from modyn_dagster.errors import ModelInUse, RunError, UnknownName
from modyn_dagster.files.mounting import files_at
from modyn_dagster.pipeline.operate.removal.plan import RemovalPlan
from modyn_dagster.pipeline.operate.store_audit import has_model, needs_of, stores_of_project
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.replay.run import require_idle
from modyn_dagster.spec.evaluation import TrainingSetData

if TYPE_CHECKING:
    from modyn_dagster.model_store import ModelId

#: Folders of the home folder with a folder for each run.
RUN_FOLDERS: Final = ("training_sets", "predictions", "checkpoints", "optimizers", "ahead")


def plan_pipeline_removal(platform: Platform, name: str, *, rebase: bool = False) -> RemovalPlan:
    """Plan the removal of a pipeline, whether or not the project still has its file.

    Raises:
        UnknownName: the catalog has no such pipeline.
        RunError: it is live or a replay is running, or another pipeline depends on it.
        ModelInUse: models that stay need one of its models, and they are not to be stored again (``rebase``).
    """
    with platform.transaction() as conn:
        runs = _removable_runs(conn, platform, name)
        uses = model_uses(conn)
        triggers = [trigger for run in runs for trigger in list_triggers(conn, run.id)]
    models = _own_models(platform, name, uses, runs)
    if not rebase:
        _require_no_bases(platform, {model for ids in models.values() for model in ids})
    paths = [f"{folder}/{run.id:06d}" for run in runs for folder in RUN_FOLDERS]
    own = sum(map(len, models.values()))
    shared = len({use.hash for use in uses if use.pipeline == name}) - own
    others = f" ({shared} more stay: other pipelines name them, or they are gone)" if shared else ""
    summary = f"{len(runs)} runs, {len(triggers)} triggers, {own} models{others}"
    present = [path for path in paths if files_at(place := platform.place_of(path)).exists(place)]
    return RemovalPlan("pipeline", name, summary, present, models, rebase, [trigger.partition_key for trigger in triggers])


def commit_pipeline_removal(platform: Platform, plan: RemovalPlan) -> None:
    """Delete the rows of a pipeline, and write the journal entry of the rest, in one transaction.

    Raises what ``plan_pipeline_removal`` does, and ``RunError`` where something of the pipeline was added since the plan.
    """
    with platform.transaction() as conn:
        pipeline_id = lock_pipeline(conn, plan.name)
        runs = _removable_runs(conn, platform, plan.name)
        triggers = [trigger.partition_key for run in runs for trigger in list_triggers(conn, run.id)]
        if pipeline_id is None or triggers != list(plan.partitions):
            raise RunError(f"{plan.name} has run since this was planned; start again")
        begin_removal(conn, "pipeline", plan.name, plan.to_json())
        delete_pipeline(conn, pipeline_id)


def _removable_runs(conn: sa.Connection, platform: Platform, name: str) -> list[RunRow]:
    """Runs of a pipeline, none of which is running or needed; they stay idle until the transaction ends."""
    every = list_runs(conn)
    runs = [run for run in every if run.pipeline == name]
    if not runs:
        raise UnknownName("pipeline with runs", name, sorted({run.pipeline for run in every}))
    for run in runs:
        # Without its file no sensor continues a live run.
        if run.mode == "live" and run.state in ("active", "stopping") and name in platform.project.pipelines:
            raise RunError(f"{run.title} is {run.state}; stop it first: `modyn-dagster pipeline stop {name}` (`--now`: at once)")
        require_idle(conn, run)
    _require_no_dependents(platform, name, runs, [run for run in every if run.pipeline != name])
    return runs


def _require_no_dependents(platform: Platform, name: str, runs: Sequence[RunRow], others: Sequence[RunRow]) -> None:
    for spec in platform.project.pipelines.values():
        data = spec.evaluation.data
        if spec.name != name and isinstance(data, TrainingSetData) and data.pipeline == name:
            raise RunError(f"{spec.name} evaluates its models on the training sets of {name}; change or remove {spec.name} first")
    ids = {run.id for run in runs}
    for run in others:
        if run.is_open and ids & set(run.options.values()):
            rule = f"finish that replay or remove {run.pipeline} first"
            raise RunError(f"{run.title} repeats triggers or costs of a run of {name}; {rule}")


def _own_models(
    platform: Platform, name: str, uses: Sequence[ModelUse], runs: Sequence[RunRow]
) -> Mapping[str, Sequence["ModelId"]]:
    """Stored models that only this pipeline names, by the root of their store."""
    others = {use.hash for use in uses if use.pipeline != name}
    own = {use.hash for use in uses if use.pipeline == name} - others
    if not own:
        return {}
    specs = [spec for run in runs for spec in (platform.recorded_spec(run), platform.spec_of(run))]
    stores = {str(store.root): store for store in map(platform.models_of, specs)}
    found = {root: [model for model in sorted(own) if has_model(store, model)] for root, store in stores.items()}
    return {root: models for root, models in found.items() if models}


def _require_no_bases(platform: Platform, going: Collection["ModelId"]) -> None:
    """Raise ``ModelInUse`` for the first model that one outside of the set needs."""
    for store in stores_of_project(platform) if going else ():
        staying = set(store.list()) - set(going)
        for child in sorted(staying):
            for model in needs_of(store, child):
                if model in going:
                    raise ModelInUse(model, [child], "add --rebase, which stores it again without that one, or remove it first")
