"""A tiny project on a real catalog, driven without Dagster: ingest, replay, tick and train by calling the packages."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from modyn_dagster.catalog import runs
from modyn_dagster.catalog.decisions import list_decisions
from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.training_sets import find_training_set
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.decide.attempts import claim_context
from modyn_dagster.pipeline.decide.measure_ahead import BatchMeasurements, measure_ahead
from modyn_dagster.pipeline.decide.tick import Attempt, Tick, tick
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.promotion.gate_walk import advance_live
from modyn_dagster.pipeline.replay.run import ReplayRequest
from modyn_dagster.pipeline.replay.walk import replay
from modyn_dagster.pipeline.stages.trigger_stages import StageResult, evaluation_stage, model_stage, training_set_stage
from modyn_dagster.settings import Settings
from tests.projects.tiny import DATASET, Content, batch_text, drop, write_project


@dataclass
class World:
    """A project folder and its platform; ``deliver`` ingests batches, one per day."""

    folder: Path
    settings: Settings

    def __post_init__(self) -> None:
        self.platform = Platform.open(self.settings)

    def reload(self) -> None:
        """Take up changed specs, as a reloaded code location does."""
        self.close()
        self.platform = Platform.open(self.settings)

    def close(self) -> None:
        self.platform.close()

    def deliver(self, days: Sequence[int], *, hours_late: float = 0, **content: Any) -> None:
        for day in days:
            text = batch_text(day, hours_late=hours_late, **content)
            drop(self.folder, f"day_{day:02d}" + ("_late" if hours_late else ""), text)
        spec = self.platform.project.datasets[DATASET]
        import_history(self.platform.engine, self.platform.home, spec, self.platform.project.root_of(DATASET))

    def keys(self) -> list[str]:
        return [batch.partition_key for batch in self.platform.view(DATASET).batches]

    def replay(self, pipeline: str, keys: Sequence[str] | None = None, **options: Any) -> list[Any]:
        request = ReplayRequest(pipeline, keys if keys is not None else self.keys(), "dagster-run", **options)
        return list(replay(self.platform, request))

    def tick(self, pipeline: str) -> Tick:
        return tick(self.platform, pipeline, lambda *_: Attempt.NONE)

    def train(self, pipeline: str, trigger: TriggerRow, dagster_run_id: str = "live") -> StageResult | None:
        context = claim_context(self.platform, trigger, dagster_run_id)
        return model_stage(training_set_stage(context).context)

    def measure(self, pipeline: str) -> list[BatchMeasurements]:
        """Measure as a run of ``measurement`` does."""
        return list(measure_ahead(self.platform, pipeline))

    def live_until_idle(self, pipeline: str) -> Tick:
        """Tick, train and measure as the sensor and its runs would, until nothing is left to do; then judge, and promote."""
        while (now := self.tick(pipeline)).train is not None or now.measure is not None or now.looks:
            if now.train is not None:
                self.train(pipeline, now.train)
            elif now.measure is not None:
                self.measure(pipeline)
            else:
                advance_live(self.platform, now.run)
        view = self.platform.view_of(now.run)
        for trigger in self.triggers(now.run.id, "trained"):
            context = context_of(self.platform, pipeline, trigger.partition_key, view)
            evaluation_stage(context, finished=False)
        return now

    def triggers(self, run_id: int, *states: str) -> list[TriggerRow]:
        with self.platform.transaction() as conn:
            return list_triggers(conn, run_id, states or None)

    def run(self, pipeline: str, mode: str) -> runs.RunRow:
        with self.platform.transaction() as conn:
            return [run for run in runs.list_runs(conn, pipeline) if run.mode == mode][-1]

    def reread(self, run_id: int) -> runs.RunRow:
        with self.platform.transaction() as conn:
            return runs.get_run(conn, run_id)

    def run_named(self, pipeline: str, name: str) -> runs.RunRow:
        """The newest replay of this name."""
        with self.platform.transaction() as conn:
            return [run for run in runs.list_runs(conn, pipeline) if (run.mode, run.name) == ("replay", name)][-1]

    def decisions(self, run: runs.RunRow) -> list[tuple[Any, ...]]:
        """Every decision of a run, whatever the run's number."""
        with self.platform.transaction() as conn:
            rows = list_decisions(conn, run.id)
        return [(row.point, row.key, row.time, row.fire, row.reason, row.score, row.threshold, row.details) for row in rows]

    def outcome(self, run: runs.RunRow) -> dict[str, Any]:
        """Facts that two runs must have in common to be the same: decisions, bytes, hashes and scores."""
        with self.platform.transaction() as conn:
            triggers = list_triggers(conn, run.id)
            models = list_models(conn, run.id)
            cells = list_evaluations(conn, run.id)
            rows = [find_training_set(conn, trigger.id) for trigger in triggers]
            return {
                "triggers": [(t.ordinal, t.key, t.point, t.reason, t.state) for t in triggers],
                "training_sets": [row.checksum for row in rows if row is not None],
                "models": [(m.ordinal, m.hash, m.previous_hash, m.train_start, m.train_end) for m in models],
                "evaluations": [
                    (c.ordinal, c.interval_start, c.interval_end, c.metric, c.n_samples, c.value, c.undefined) for c in cells
                ],
            }


def make_world(settings: Settings, folder: Path, pipelines: Sequence[Content], **options: Any) -> World:
    write_project(folder, pipelines, **options)
    return World(folder, replace(settings, project=folder))
