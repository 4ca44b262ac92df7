"""From a project folder to Dagster definitions."""

from modyn_dagster.imports import require

require("dagster", __name__)

import logging
from dataclasses import replace
from pathlib import Path

import dagster as dg
from dagster_shared.libraries import DagsterLibraryRegistry

from modyn_dagster import __version__
from modyn_dagster.assets.comparison import comparison_asset
from modyn_dagster.assets.deletion.job import delete_samples
from modyn_dagster.assets.evaluation import evaluation_asset
from modyn_dagster.assets.jobs import (
    evaluate_job,
    measure_job,
    model_store_gc,
    model_store_gc_schedule,
    notify_job,
    retention,
    train_job,
    trigger_now_job,
)
from modyn_dagster.assets.labels.asset import labels_asset
from modyn_dagster.assets.measurement import measurement_asset
from modyn_dagster.assets.promotion.champion import champion_asset
from modyn_dagster.assets.promotion.job import promotion_job
from modyn_dagster.assets.replay import replay_asset
from modyn_dagster.assets.samples import freshness_check, samples_asset
from modyn_dagster.assets.scrub import scrub, scrub_schedule
from modyn_dagster.assets.specs import DatasetAssets, PipelineAssets
from modyn_dagster.assets.training import model_asset, training_set_asset
from modyn_dagster.assets.translator import ModynTranslator
from modyn_dagster.private_files import keep_files_private
from modyn_dagster.resources.fast_path import FastPathResource
from modyn_dagster.resources.mlflow import MlflowResource
from modyn_dagster.resources.model_store import ModelStoreResource
from modyn_dagster.resources.platform import PlatformResource
from modyn_dagster.resources.postgres import PostgresResource
from modyn_dagster.sensors.freshness import freshness_sensor
from modyn_dagster.sensors.new_data import new_data_sensor, new_labels_sensor
from modyn_dagster.sensors.notification import notifying_sensor
from modyn_dagster.sensors.schedules import retention_schedule
from modyn_dagster.sensors.triggering import triggering_sensor
from modyn_dagster.settings import Settings
from modyn_dagster.spec.load import Project, load_project
from modyn_dagster.spec.triggers.trigger import measures

DagsterLibraryRegistry.register("modyn-dagster", __version__, is_dagster_package=False)


def build_definitions(
    project: Path | str | None = None,
    *,
    settings: Settings | None = None,
    translator: ModynTranslator | None = None,
    fast_path: FastPathResource | None = None,
) -> dg.Definitions:
    """Assets, checks, sensors, jobs and resources of every ``datasets/*.yaml`` and ``pipelines/*.yaml`` of a folder.

    Nothing but these files is read; Postgres and MLflow are first touched by a run or a tick. Merge the result with
    definitions of your own by ``dagster.Definitions.merge``. Trainings are fastest with ``dagster.in_process_executor`` as
    the executor of the merged definitions, and correct with any.

    Args:
        project: folder with ``datasets/`` and ``pipelines/``; default: that of the settings.
        settings: where state lives; default: the environment.
        translator: changes keys, groups, owners and descriptions of assets.
        fast_path: how trainings read samples, as a default that runs may change.

    Raises:
        ConfigError: a spec is impossible; names file, field and what is allowed.
    """
    keep_files_private()
    chosen = settings if settings is not None else Settings.from_environment()
    if project is not None:
        chosen = replace(chosen, project=Path(project).resolve())
    loaded = load_project(chosen.project)
    if not loaded.datasets:
        logging.getLogger(__name__).warning("no datasets/*.yaml in %s; MODYN_PROJECT names the folder", loaded.folder)
    face = translator or ModynTranslator()
    parts = [_of_dataset(assets) for assets in _datasets(loaded, face)]
    shared = dg.Definitions(
        jobs=[retention, model_store_gc, scrub, delete_samples],
        schedules=[model_store_gc_schedule, retention_schedule(loaded.pipelines.values()), scrub_schedule],
        resources={
            "modyn": PlatformResource(settings=chosen),
            "modyn_postgres": PostgresResource(settings=chosen),
            "modyn_mlflow": MlflowResource(),
            "modyn_model_store": ModelStoreResource(settings=chosen),
            "modyn_fast_path": fast_path if fast_path is not None else FastPathResource(),
        },
    )
    return dg.Definitions.merge(shared, *parts)


def _datasets(project: Project, translator: ModynTranslator) -> list[DatasetAssets]:
    return [
        DatasetAssets(dataset, [p for p in project.pipelines.values() if p.dataset == dataset.name], translator, project.folder)
        for dataset in project.datasets.values()
    ]


def _of_dataset(assets: DatasetAssets) -> dg.Definitions:
    freshness, has_label_files = assets.dataset.freshness, assets.dataset.has_label_files
    alone = dg.Definitions(
        assets=[samples_asset(assets), *([labels_asset(assets)] if has_label_files else []), comparison_asset(assets)],
        sensors=[
            new_data_sensor(assets),
            *([new_labels_sensor(assets)] if has_label_files else []),
            *([freshness_sensor(assets, freshness.maximum)] if freshness else []),
        ],
        asset_checks=[freshness_check(assets)] if freshness else [],
    )
    return dg.Definitions.merge(alone, *map(_of_pipeline, assets.of_pipelines()))


def _of_pipeline(assets: PipelineAssets) -> dg.Definitions:
    jobs = [train_job(assets), evaluate_job(assets)]
    made = [training_set_asset(assets), model_asset(assets), evaluation_asset(assets), replay_asset(assets)]
    if measures(assets.pipeline.trigger):
        jobs.append(measure_job(assets))
        made.append(measurement_asset(assets))
    sensors = [triggering_sensor(assets, list(jobs))]
    jobs.append(trigger_now_job(assets))
    if assets.pipeline.promotion is not None:
        made.append(champion_asset(assets))
        jobs.append(promotion_job(assets))
    if (notify := assets.pipeline.notify) is not None:
        jobs.append(notify_job(assets, notify))
        sensors.append(notifying_sensor(assets, jobs[-1]))
    return dg.Definitions(assets=made, jobs=jobs, sensors=sensors)
