"""Definitions of a project on an instance, driven as Dagster's daemon and a person at its pages drive them."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import dagster as dg

from modyn_dagster.assets.dagster_runs import DATASET_TAG, LABELS_TAG, RUN_KEY_TAG
from modyn_dagster.build import build_definitions
from modyn_dagster.catalog.batches import BatchRow, list_batches
from modyn_dagster.catalog.datasets import get_dataset
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.resources.platform import platform_of
from modyn_dagster.settings import Settings
from tests.projects.tiny import DATASET, drop

Key = Sequence[str]


@dataclass(frozen=True)
class Ticked:
    """Result of a tick of a sensor."""

    requests: Sequence[dg.RunRequest]
    skipped: str | None
    cursor: str | None


@dataclass
class Face:
    settings: Settings
    instance: dg.DagsterInstance

    @cached_property
    def defs(self) -> dg.Definitions:
        return build_definitions(settings=self.settings)

    @property
    def platform(self) -> Platform:
        return platform_of(self.settings)

    def materialize(
        self,
        *assets: Key,
        partition: str | None = None,
        batches: tuple[str, str] | None = None,
        config: Mapping[str, Any] | None = None,
        level: str = "CRITICAL",
    ) -> dg.ExecuteInProcessResult:
        """One run that makes some assets, of one partition or a range of batches."""
        ranged = {} if batches is None else dict(zip(_RANGE, batches))
        ops = {"__".join(assets[0]): {"config": dict(config)}} if config else {}
        return dg.materialize(
            list(self.defs.assets or []),  # type: ignore[arg-type]  # Dagster's type of assets is wider than what it makes
            selection=[dg.AssetKey(list(key)) for key in assets],
            instance=self.instance,
            resources=self.defs.resources,
            partition_key=partition,
            tags=ranged,
            run_config={"ops": ops, "loggers": {"console": {"config": {"log_level": level}}}},
            raise_on_error=False,
        )

    def tick(self, sensor: str, cursor: str | None = None) -> Ticked:
        """One tick, and the partitions it asks for."""
        context = dg.build_sensor_context(self.instance, cursor, definitions=self.defs, resources=self.defs.resources)
        with context:
            result = self.defs.resolve_sensor_def(sensor)(context)
        if isinstance(result, dg.SkipReason):
            return Ticked([], result.skip_message, cursor)
        assert isinstance(result, dg.SensorResult)
        for request in result.dynamic_partitions_requests or []:
            self.instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
        skipped = None if result.skip_reason is None else result.skip_reason.skip_message
        return Ticked(result.run_requests or [], skipped, result.cursor)

    def launch(self, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        """Run what a sensor asked for: a job, or the samples or labels of its dataset."""
        if request.job_name is None:
            asset = "labels" if LABELS_TAG in request.tags else "samples"
            job, selection = (
                self.defs.resolve_implicit_global_asset_job_def(),
                [dg.AssetKey([request.tags[LABELS_TAG if asset == "labels" else DATASET_TAG], asset])],
            )
        else:
            job, selection = self.defs.resolve_job_def(request.job_name), None
        return job.execute_in_process(
            run_config={**request.run_config},
            instance=self.instance,
            asset_selection=selection,
            partition_key=request.partition_key,
            tags={**request.tags, RUN_KEY_TAG: str(request.run_key)},
            raise_on_error=False,
        )

    def materializations(self, *key: str) -> dict[str | None, dict[str, Any]]:
        """Metadata of the newest materialization of every partition of an asset."""
        records = self.instance.fetch_materializations(dg.AssetKey(list(key)), limit=1_000, ascending=True).records
        found = [record.asset_materialization for record in records]
        return {event.partition: {name: value.value for name, value in event.metadata.items()} for event in found if event}

    def evaluations(self, result: dg.ExecuteInProcessResult) -> dict[tuple[str, str | None], bool]:
        """Results of the checks of a run as its log has them, by name and partition."""
        logged = self.instance.all_logs(result.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        checks = [entry.get_dagster_event().asset_check_evaluation_data for entry in logged]
        return {(check.check_name, check.partition): check.passed for check in checks}

    def batches(self, dataset: str) -> list[BatchRow]:
        with self.platform.transaction() as conn:
            return list_batches(conn, get_dataset(conn, dataset).id)

    def partitions(self, name: str) -> Sequence[str]:
        return self.instance.get_dynamic_partitions(name)


def ingest_day(face: Face, key: str) -> None:
    """Two looks of the sensor, and the run it asks for one batch; the batch may be a bad one."""
    asked = face.tick(f"new_data__{DATASET}", face.tick(f"new_data__{DATASET}").cursor).requests
    face.launch(next(request for request in asked if request.partition_key == key))


_AGES = count(3_600, -1)


def deliver(project: Path, key: str, text: str) -> None:
    """A batch file that was written an hour ago: only two looks have to see it. A later delivery is a younger file."""
    drop(project, key, text)
    moment = time.time() - next(_AGES)
    os.utime(project / "data" / f"{key}.csv", (moment, moment))


_RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")


def error_of(result: dg.ExecuteInProcessResult) -> str:
    """Error of an op of a failed run, with its class; Dagster wraps it."""
    for event in result.all_events:
        if event.is_step_failure:
            error = event.step_failure_data.error
            assert error is not None
            return (error.cause or error).message
    return ""
