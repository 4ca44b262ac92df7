"""MLflow beside Dagster: links both ways. MLflow is a display, so its absence is a warning and never an error."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from modyn_dagster.errors import TrackingError
from modyn_dagster.resources.mlflow import MlflowResource

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from modyn_dagster.catalog.runs import RunRow
    from modyn_dagster.pipeline.context import TriggerContext
    from modyn_dagster.pipeline.platform import Platform
    from modyn_dagster.reporting.mlflow.tracker import Tracker


class MlflowLinks:
    """Shows pipeline runs and triggers in MLflow on behalf of one Dagster run.

    After the first failure the op goes on without: waiting for a dead server at every trigger would cost more than the
    picture is worth, and the next run makes up for what is missing.
    """

    def __init__(self, context: dg.AssetExecutionContext, mlflow: MlflowResource, platform: "Platform") -> None:
        self._context = context
        self._mlflow = mlflow
        self._platform = platform
        self._off = False
        self._tagged = False

    def trigger(self, shown: "TriggerContext") -> str | None:
        """Bring the MLflow run of a trigger up to date; returns its page."""

        def sync(tracker: "Tracker") -> str:
            run = self._context.run.run_id
            return tracker.sync_trigger(self._platform.engine, shown.run, shown.trigger, run, _page_of(run))

        return self._sync(sync)

    def run(self, shown: "RunRow") -> str | None:
        """Bring the MLflow run of a pipeline run up to date; returns its page."""

        def sync(tracker: "Tracker") -> str:
            run = self._context.run.run_id
            return tracker.sync_run(self._platform.engine, shown, run, _page_of(run))

        return self._sync(sync)

    def comparison(self, dataset: str, scores: Mapping[str, float], page: Path, figures: "Mapping[str, Figure]") -> str | None:
        """Bring the comparison of a dataset up to date, page and pictures beside it; returns its page."""
        from modyn_dagster.reporting.mlflow.content import DagsterRun

        run = DagsterRun(self._context.run.run_id, _page_of(self._context.run.run_id))
        return self._sync(lambda tracker: tracker.sync_comparison(self._platform.engine, dataset, scores, page, figures, run))

    def _sync(self, sync: "Callable[[Tracker], str]") -> str | None:
        if self._off:
            return None
        try:
            tracker = self._mlflow.tracker()
            if tracker is None:
                return None
            mlflow_run = sync(tracker)
            self._tag(mlflow_run)
            return tracker.url_of(mlflow_run)
        except TrackingError as error:
            self._off = True
            self._context.log.warning(f"not shown in MLflow: {error}")
            return None

    def _tag(self, mlflow_run: str) -> None:
        """The Dagster run links to the first MLflow run it showed: a training to its trigger, a replay to itself."""
        if not self._tagged:
            self._context.instance.add_run_tags(self._context.run.run_id, {"mlflow/run_id": mlflow_run})
            self._tagged = True


def _page_of(dagster_run_id: str) -> str | None:
    """The run's page, where the environment says how people reach Dagster."""
    base = os.environ.get("MODYN_DAGSTER_UI_URL", "").rstrip("/")
    return f"{base}/runs/{dagster_run_id}" if base else None
