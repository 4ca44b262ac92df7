"""Removal of a dataset: its batches with their samples, indexes, shards, label files and lists of deleted samples."""

from typing import Final

import sqlalchemy as sa

from modyn_dagster.catalog.batches import list_batches
from modyn_dagster.catalog.datasets import DatasetRow, find_dataset, get_dataset
from modyn_dagster.catalog.deletions import lock_deletions
from modyn_dagster.catalog.removal.journal import begin_removal
from modyn_dagster.catalog.removal.rows import delete_dataset, lock_for_removal, pipelines_on
from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.errors import RunError
from modyn_dagster.files.mounting import files_at
from modyn_dagster.pipeline.operate.removal.plan import RemovalPlan
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.spec.evaluation import OtherDataset

#: Folders of the home folder with a folder for each dataset.
DATASET_FOLDERS: Final = ("batches", "shards", "labels")


def plan_dataset_removal(platform: Platform, name: str) -> RemovalPlan:
    """Plan the removal of a dataset, whether or not the project still has its file.

    Raises:
        UnknownName: the catalog has no such dataset.
        RunError: a pipeline has run on it, or is evaluated on it.
    """
    with platform.transaction() as conn:
        row = get_dataset(conn, name)
        _require_no_pipelines(conn, platform, row)
        batches = list_batches(conn, row.id)
    paths = [*(f"{folder}/{name}" for folder in DATASET_FOLDERS), *(f"reports/{name}.{kind}" for kind in ("html", "png"))]
    present = [path for path in paths if files_at(place := platform.place_of(path)).exists(place)]
    summary = f"{len(batches)} batches, {sum(batch.n_samples or 0 for batch in batches)} samples"
    return RemovalPlan("dataset", name, summary, present, partitions=[batch.partition_key for batch in batches])


def commit_dataset_removal(platform: Platform, plan: RemovalPlan) -> None:
    """Delete the rows of a dataset, and write the journal entry of the rest, in one transaction.

    Raises what ``plan_dataset_removal`` does, and ``RunError`` where batches were added since the plan.
    """
    with platform.transaction() as conn:
        found = find_dataset(conn, plan.name)
        if found is None:
            raise RunError(f"dataset {plan.name} was removed meanwhile")
        lock_deletions(conn, found.id)
        lock_for_removal(conn, found.id)
        _require_no_pipelines(conn, platform, found)
        if [batch.partition_key for batch in list_batches(conn, found.id)] != list(plan.partitions):
            raise RunError(f"dataset {plan.name} got batches since this was planned; start again")
        begin_removal(conn, "dataset", plan.name, plan.to_json())
        delete_dataset(conn, found.id)


def _require_no_pipelines(conn: sa.Connection, platform: Platform, row: DatasetRow) -> None:
    if on_it := pipelines_on(conn, row.id):
        names = ", ".join(on_it)
        raise RunError(f"{names} ran on dataset {row.name}; remove first: `modyn-dagster pipeline remove {on_it[0]}`")
    ran = {run.pipeline for run in list_runs(conn)}
    for spec in platform.project.pipelines.values():
        data = spec.evaluation.data
        if spec.name in ran and isinstance(data, OtherDataset) and data.dataset == row.name:
            raise RunError(f"{spec.name} is evaluated on dataset {row.name}; change or remove {spec.name} first")
