"""Tracking in MLflow: one experiment per pipeline, a parent run per pipeline run, a child run per trigger.

MLflow is a display of the catalog: every sync brings it to the current state of the catalog, from any earlier state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.runs import RunRow, get_run, set_mlflow_run
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers, untracked_triggers
from modyn_dagster.catalog.triggers import set_mlflow_run as set_trigger_mlflow_run
from modyn_dagster.reporting.mlflow.content import Content, DagsterRun
from modyn_dagster.reporting.mlflow.experiments import Experiments, comparison_note, pipeline_note
from modyn_dagster.reporting.mlflow.registry.aliases import AliasMoves
from modyn_dagster.reporting.mlflow.registry.records import read_records
from modyn_dagster.reporting.mlflow.registry.registered_models import RegisteredModels, registered_name
from modyn_dagster.reporting.mlflow.registry.versions import LiveVersion, read_models
from modyn_dagster.reporting.mlflow.run_content import comparison_tags, read_run
from modyn_dagster.reporting.mlflow.runs import TrackedRuns
from modyn_dagster.reporting.mlflow.series import digest_of
from modyn_dagster.reporting.mlflow.stream_time import StreamTime, interval_table
from modyn_dagster.reporting.mlflow.trigger_content import TriggerRecord, read_trigger, trigger_content
from modyn_dagster.reporting.plots.sketches import scores_svg
from modyn_dagster.reporting.scores import Interval, spec_of
from modyn_dagster.reporting.summary import RunSummary

if TYPE_CHECKING:
    from mlflow import MlflowClient


#: First number of the advisory locks that keep two processes from syncing the same run at once.
_LOCK: Final = 0x4D4C666C
_FILES: Final = "modyn/files"
_StoreRunId = Callable[[sa.Connection, str], None]


class Tracker:
    """Shows runs and triggers of the catalog in MLflow.

    Every ``sync`` may be repeated at any time, by several processes. It raises ``TrackingError`` when MLflow is down or refuses;
    the next sync then catches up.

    Args:
        client: of MLflow.
        ui_url: address of MLflow's pages.
        artifact_root: folder or URL for files of new experiments; None: MLflow chooses.
    """

    def __init__(self, client: MlflowClient, ui_url: str, artifact_root: str | None = None) -> None:
        self._experiments = Experiments(client, artifact_root)
        self._runs = TrackedRuns(client)
        self._models = RegisteredModels(client)
        self._ui_url = ui_url.rstrip("/")

    def sync_run(
        self,
        engine: sa.Engine,
        run: RunRow,
        dagster_run_id: str | None = None,
        dagster_url: str | None = None,
        progress: Callable[[], None] = lambda: None,
    ) -> str:
        """Show a pipeline run: spec, state, cost, score, and a plot of it over time. Returns its MLflow run id.

        Its settled triggers that MLflow does not show are shown as well, such as those settled while it was away. ``progress`` is
        called after each trigger and registered model.
        """
        with _run_lock(engine, run.id):
            run, content, summary, intervals = read_run(engine, run.id, DagsterRun(dagster_run_id, dagster_url))
            run_id = self._show_run(engine, run, content)
            with transaction(engine) as conn:
                missed = untracked_triggers(conn, run.id)
            if missed:
                self._show_triggers(engine, run, run_id, missed, DagsterRun(), progress)
            elif spec_of(run).promotion is not None:
                # The gate may have promoted a model since its trigger was shown.
                self._sync_models(engine, run, progress)
            self._add_files(run_id, run, summary, intervals)
        return run_id

    def sync_models(self, engine: sa.Engine, run: RunRow, progress: Callable[[], None] = lambda: None) -> AliasMoves | None:
        """Register the missing models of a run, and move the aliases to where the catalog has them.

        Returns the aliases that were moved and those that a person holds elsewhere; None where they belong to another run, whose
        model went live later, or no model was live yet.
        """
        with _run_lock(engine, run.id):
            return self._sync_models(engine, run, progress)

    def sync_trigger(
        self,
        engine: sa.Engine,
        run: RunRow,
        trigger: TriggerRow,
        dagster_run_id: str | None = None,
        dagster_url: str | None = None,
    ) -> str:
        """Show a trigger: decision, training set, training, loss curve, seconds and scores. Returns its MLflow run id.

        The default Dagster run is the one that last claimed the trigger.
        """
        return self.sync_triggers(engine, run, [trigger], dagster_run_id, dagster_url)[0]

    def sync_triggers(
        self,
        engine: sa.Engine,
        run: RunRow,
        triggers: Sequence[TriggerRow],
        dagster_run_id: str | None = None,
        dagster_url: str | None = None,
        progress: Callable[[], None] = lambda: None,
    ) -> list[str]:
        """Show triggers of one run; parent, experiment and registered models are looked up once. Returns MLflow run ids.

        ``progress`` is called after each trigger and registered model.
        """
        with _run_lock(engine, run.id):
            dagster = DagsterRun(dagster_run_id, dagster_url)
            return self._show_triggers(engine, run, self._parent(engine, run.id), triggers, dagster, progress)

    def sync_all(self, engine: sa.Engine, run: RunRow) -> str:
        """Show a pipeline run with all its triggers. Returns its MLflow run id."""
        with transaction(engine) as conn:
            rows = list_triggers(conn, run.id)
        if rows:
            self.sync_triggers(engine, run, rows)
        return self.sync_run(engine, run)

    def sync_comparison(
        self,
        engine: sa.Engine,
        dataset: str,
        scores: Mapping[str, float],
        files: Sequence[Path] = (),
        dagster: DagsterRun | None = None,
    ) -> str:
        """Show the comparison of a dataset's pipelines in the only run of the experiment ``<dataset>.comparison``.

        Args:
            engine: of the catalog.
            dataset: name.
            scores: by name.
            files: interactive page and pictures, stored under their names.
            dagster: Dagster run that made the comparison.

        Returns:
            The MLflow run id.
        """
        identity = {"modyn/comparison": dataset}
        now = time.time_ns() // 1_000_000
        tags = identity | comparison_tags(dataset, dagster or DagsterRun())
        content = Content("comparison", identity, "FINISHED", now, None, tags=tags, params={}, numbers=dict(scores))
        with transaction(engine) as conn:
            conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK, sa.func.hashtext(f"comparison of {dataset}"))))
            experiment = self._experiments.ensure(f"{dataset}.comparison", comparison_note(dataset))
            shown = self._runs.ensure(experiment, content, None)
            self._runs.write(shown, content)
            for file in files:
                self._runs.add_file(shown.info.run_id, file)
        return str(shown.info.run_id)

    def url_of(self, mlflow_run_id: str) -> str:
        """Page of a run in MLflow."""
        return f"{self._ui_url}/#/experiments/{self._runs.experiment_of(mlflow_run_id)}/runs/{mlflow_run_id}"

    def live_at(self, pipeline: str, moment: datetime) -> LiveVersion | None:
        """Newest registered version of a live pipeline at a moment; None before the first."""
        return self._models.live_at(pipeline, moment)

    def _experiment(self, run: RunRow) -> str:
        """Id of the experiment of a pipeline."""
        note = pipeline_note(run, spec_of(run).evaluation.score_metric, registered_name(run))
        return self._experiments.ensure(run.pipeline, note)

    def _parent(self, engine: sa.Engine, run_id: int) -> str:
        """MLflow run id of a pipeline run, created if missing; ``sync_run`` updates its content."""
        with transaction(engine) as conn:
            stored = get_run(conn, run_id).mlflow_run_id
        if stored is not None and self._runs.exists(stored):
            return stored
        run, content, _, _ = read_run(engine, run_id, DagsterRun())
        return self._show_run(engine, run, content)

    def _show_triggers(
        self,
        engine: sa.Engine,
        run: RunRow,
        parent: str,
        triggers: Sequence[TriggerRow],
        dagster: DagsterRun,
        progress: Callable[[], None],
    ) -> list[str]:
        experiment = self._experiment(run)
        records = [read_trigger(engine, run.id, trigger.id) for trigger in triggers]
        shown = []
        for record in records:
            shown.append(self._show_trigger(engine, experiment, parent, record, dagster))
            progress()
        if any(record.model is not None for record in records):
            self._sync_models(engine, records[-1].run, progress)
        return shown

    def _sync_models(self, engine: sa.Engine, run: RunRow, progress: Callable[[], None]) -> AliasMoves | None:
        found = read_models(engine, run)
        return self._models.sync(run, found, read_records(engine, run), progress) if found.models else None

    def _show_trigger(self, engine: sa.Engine, experiment: str, parent: str, record: TriggerRecord, dagster: DagsterRun) -> str:
        def store_run_id(conn: sa.Connection, mlflow_run_id: str) -> None:
            set_trigger_mlflow_run(conn, record.trigger.id, mlflow_run_id)

        content = trigger_content(record, parent=parent, dagster=dagster)
        return self._show(engine, experiment, content, record.trigger.mlflow_run_id, store_run_id)

    def _show_run(self, engine: sa.Engine, run: RunRow, content: Content) -> str:
        def store_run_id(conn: sa.Connection, mlflow_run_id: str) -> None:
            set_mlflow_run(conn, run.id, mlflow_run_id)

        experiment = self._experiment(run)
        shown = self._show(engine, experiment, content, run.mlflow_run_id, store_run_id)
        if run.mlflow_run_id not in (None, shown):
            self._adopt(engine, run, shown)
        return shown

    def _adopt(self, engine: sa.Engine, run: RunRow, parent: str) -> None:
        """Move the triggers of a replaced run below the new one."""
        with transaction(engine) as conn:
            rows = list_triggers(conn, run.id)
        for trigger in rows:
            if trigger.mlflow_run_id is not None and self._runs.exists(trigger.mlflow_run_id):
                self._runs.set_tag(trigger.mlflow_run_id, "mlflow.parentRunId", parent)

    def _show(self, engine: sa.Engine, experiment: str, content: Content, stored: str | None, store_run_id: _StoreRunId) -> str:
        while True:
            shown = self._runs.ensure(experiment, content, stored)
            run_id: str = shown.info.run_id
            if run_id != stored:
                with transaction(engine) as conn:
                    store_run_id(conn, run_id)
            if self._runs.write(shown, content):
                return run_id
            # The run has content that is wrong and that MLflow cannot take back: it is replaced by a new one from the catalog.
            self._runs.delete(run_id)
            stored = None

    def _add_files(self, run_id: str, run: RunRow, summary: RunSummary, intervals: Sequence[Interval]) -> None:
        table = interval_table(intervals, StreamTime.of_run(run, intervals))
        tables: dict[str, Any] = {"summary.json": summary.to_json(), "intervals.json": table}
        digest = digest_of(tables)
        if self._runs.tag(run_id, _FILES) == digest:
            return
        if self._runs.add_files(run_id, tables, {"score_over_time.svg": scores_svg(summary)}):
            self._runs.set_tag(run_id, _FILES, digest)


@contextmanager
def _run_lock(engine: sa.Engine, run_id: int) -> Iterator[None]:
    """Let one process at a time sync a run: two could create it twice."""
    with transaction(engine) as conn:
        conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK, run_id)))
        yield
