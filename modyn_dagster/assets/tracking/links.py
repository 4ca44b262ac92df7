"""MLflow beside Dagster: links both ways. MLflow is a display, so its absence is a warning and never an error."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from modyn_dagster.errors import TrackingError
from modyn_dagster.resources.mlflow import MlflowResource, Progress

if TYPE_CHECKING:
    from modyn_dagster.catalog.runs import RunRow
    from modyn_dagster.pipeline.context import TriggerContext
    from modyn_dagster.pipeline.platform import Platform
    from modyn_dagster.reporting.mlflow.tracker import Tracker


class MlflowLinks:
    """Shows pipeline runs and triggers in MLflow on behalf of one Dagster run.

    After the first failure the op goes on without, and after the first silence the whole run: waiting for a dead server at every
    trigger would cost more than the picture is worth. The catalog notes the triggers that are missing, and the next sync of their
    run makes up for them.
    """

    def __init__(self, context: dg.AssetExecutionContext, mlflow: MlflowResource, platform: "Platform") -> None:
        self._context = context
        self._mlflow = mlflow
        self._platform = platform
        self._off = False
        self._tagged = False

    def trigger(self, shown: "TriggerContext") -> str | None:
        """Bring the MLflow run of a trigger up to date; returns its page."""
        return self.triggers([shown])[0]

    def triggers(self, shown: "Sequence[TriggerContext]") -> list[str | None]:
        """Bring the MLflow runs of triggers of one run up to date; returns their pages."""

        def sync(tracker: "Tracker", progress: Progress) -> list[str]:
            run = self._context.run.run_id
            rows = [context.trigger for context in shown]
            mlflow_runs = tracker.sync_triggers(self._platform.engine, shown[0].run, rows, run, page_of(run), progress)
            if self._off:
                # The op went on without, and has forgotten the runs already.
                self._forget(shown)
            return mlflow_runs

        pages = self._sync(sync) if shown else []
        if not pages and self._off:
            self._forget(shown)
        return [*pages] or [None] * len(shown)

    def run(self, shown: "RunRow") -> str | None:
        """Bring the MLflow run of a pipeline run up to date; returns its page."""

        def sync(tracker: "Tracker", progress: Progress) -> list[str]:
            run = self._context.run.run_id
            return [tracker.sync_run(self._platform.engine, shown, run, page_of(run), progress)]

        return next(iter(self._sync(sync)), None)

    def comparison(self, dataset: str, scores: Mapping[str, float], files: Sequence[Path]) -> str | None:
        """Bring the comparison of a dataset up to date, with files beside it; returns its page."""
        from modyn_dagster.reporting.mlflow.content import DagsterRun

        run = self._context.run.run_id, page_of(self._context.run.run_id)
        process = self._mlflow.shared_process()
        if process is None:
            engine = self._platform.engine
            pages = self._sync(lambda tracker, _: [tracker.sync_comparison(engine, dataset, scores, files, DagsterRun(*run))])
            return next(iter(pages), None)
        try:
            shown = process.sync_comparison(dataset, scores, files, *run)
        except TrackingError as error:
            self._context.log.warning(f"not shown in MLflow: {error}")
            return None
        self._tag(shown.mlflow_run)
        return shown.page

    def _sync(self, sync: "Callable[[Tracker, Progress], list[str]]") -> list[str]:
        """Pages of what was brought up to date; none where MLflow is off or does not answer."""
        self._off = self._off or self._mlflow.is_silent
        if self._off or not self._mlflow.enabled:
            return []

        def shown(progress: Progress) -> tuple[list[str], list[str]]:
            tracker = self._mlflow.tracker()
            progress()
            mlflow_runs = sync(tracker, progress)
            return mlflow_runs, [tracker.url_of(mlflow_run) for mlflow_run in mlflow_runs]

        try:
            mlflow_runs, pages = self._mlflow.within(self._platform.settings.mlflow_timeout, shown)
        except TrackingError as error:
            self._off = True
            self._context.log.warning(f"not shown in MLflow: {error}")
            return []
        self._tag(mlflow_runs[0])
        return pages

    def _forget(self, shown: "Sequence[TriggerContext]") -> None:
        """Have the next sync of the run show these triggers."""
        from modyn_dagster.catalog.triggers import forget_mlflow_runs

        with self._platform.transaction() as conn:
            forget_mlflow_runs(conn, [context.trigger.id for context in shown])

    def _tag(self, mlflow_run: str) -> None:
        """The Dagster run links to the first MLflow run it showed: a training to its trigger, a replay to itself."""
        if not self._tagged:
            self._context.instance.add_run_tags(self._context.run.run_id, {"mlflow/run_id": mlflow_run})
            self._tagged = True


def page_of(dagster_run_id: str) -> str | None:
    """The run's page, where the environment says how people reach Dagster."""
    base = os.environ.get("MODYN_DAGSTER_UI_URL", "").rstrip("/")
    return f"{base}/runs/{dagster_run_id}" if base else None
