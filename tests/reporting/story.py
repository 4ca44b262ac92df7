"""Pipeline runs written into the catalog the way the driver writes them, without training anything."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from modyn_dagster.catalog import runs, timings, triggers
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.catalog.results import evaluations, models, training_sets
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.triggers import TriggerRow
from modyn_dagster.reporting.mlflow.stream_time import StreamTime
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.load import parse_spec, spec_hash
from modyn_dagster.spec.pipeline import PipelineSpec

YEAR = timedelta(days=365)
START = datetime(1900, 1, 1, tzinfo=UTC)
DATASET = DatasetSpec.model_validate(
    {"name": "d", "root": "data", "format": {"kind": "csv"}, "time": {"source": "column", "column": "time"}}
)


def year(n: float) -> datetime:
    """The n-th year of 365 days after 1900."""
    return START + n * YEAR


def step(n: float) -> int:
    """Step in MLflow of the n-th year."""
    return StreamTime().step(year(n))


def timestamp(n: float) -> int:
    """Timestamp in MLflow of the n-th year, of a run that begins before 1970."""
    return StreamTime(cycles=1).timestamp(year(n))


def spec_content(name: str, **evaluation: Any) -> dict[str, Any]:
    return {
        "name": name,
        "dataset": "d",
        "description": "A story.",
        "trigger": {"kind": "amount", "every": 10},
        "training": {"features": ["a", "b"], "model": {"name": "mlp", "hidden": [4]}},
        "evaluation": {"intervals": {"kind": "tumbling", "every": "1y"}, "metrics": ["accuracy", "log_loss"], **evaluation},
    }


class Story:
    """One run of one pipeline."""

    def __init__(
        self,
        engine: sa.Engine,
        pipeline: str = "p",
        *,
        mode: runs.Mode = "replay",
        seed: int = 0,
        promotion: Mapping[str, Any] | None = None,
        live: str | None = None,
        **evaluation: Any,
    ) -> None:
        self.engine = engine
        content = spec_content(pipeline, **evaluation)
        if promotion is not None:
            content["promotion"] = dict(promotion)
        if live is not None:
            content["live"] = live
        hashed = spec_hash(parse_spec(content, PipelineSpec, source="story"))
        with engine.begin() as conn:
            dataset_id = ensure_dataset(conn, DATASET).id
            pipeline_id = runs.ensure_pipeline(conn, pipeline, dataset_id)
            spec_id = runs.ensure_spec(conn, pipeline_id, hashed, content)
            self.run = runs.create_run(conn, pipeline_id=pipeline_id, spec_id=spec_id, mode=mode, seed=seed, threads=1)

    @property
    def pipeline(self) -> str:
        return self.run.pipeline

    def move(self, **values: Any) -> RunRow:
        with self.engine.begin() as conn:
            self.run = runs.move_run(conn, runs.get_run(conn, self.run.id), **values)
        return self.run

    def pending(self, key: int, **values: Any) -> TriggerRow:
        with self.engine.begin() as conn:
            decision = {"reason": f"sample {key}", "point": key, **values}
            row = triggers.insert_trigger(conn, self.run.id, key=key, **decision)
            return triggers.claim(conn, row, f"dagster-{key}")

    def train(self, key: int, train_end: datetime, *, n_samples: int = 10, steps: int = 3, **values: Any) -> TriggerRow:
        """A trained trigger whose model has seen samples until ``train_end``."""
        trigger = self.pending(key, **values)
        with self.engine.begin() as conn:
            self._select(conn, trigger, train_end, n_samples)
            model: dict[str, Any] = {
                "hash": f"hash-{self.run.id}-{trigger.ordinal}",
                "previous_hash": None,
                "n_samples": n_samples,
                "train_start": min(START, train_end),
                "train_end": train_end,
                "architecture": {},
                "losses": [0.5, 0.25],
                "curve": [[step, 1 / step] for step in range(1, steps + 1)],
            }
            models.insert_model(conn, trigger.id, model)
            self.spend(conn, trigger, {"select": 0.5, "train": 2.0, "save": 0.125})
            return triggers.finish(conn, trigger, "trained")

    def skip(self, key: int) -> TriggerRow:
        trigger = self.pending(key)
        with self.engine.begin() as conn:
            self._select(conn, trigger, None, 0)
            return triggers.finish(conn, trigger, "skipped")

    def fail(self, key: int, error: str = "the loss is nan") -> TriggerRow:
        trigger = self.pending(key)
        with self.engine.begin() as conn:
            return triggers.fail(conn, trigger, error)

    def spend(self, conn: sa.Connection, trigger: TriggerRow, seconds: Mapping[timings.Stage, float]) -> None:
        for stage, value in seconds.items():
            timings.record_timing(conn, self.run.id, trigger.id, trigger.attempt, timings.Timing(stage, value))

    def score(
        self,
        trigger: TriggerRow,
        values: Mapping[Any, float | None],
        metric: str = "accuracy",
        *,
        n_samples: int = 100,
        subset: str = "",
    ) -> None:
        """Cells of one trigger's model by the year their interval starts in; None is undefined."""
        rows: Sequence[dict[str, Any]] = [
            {
                "trigger_id": trigger.id,
                "interval_start": year(start),
                "interval_end": year(start + 1),
                "metric": metric,
                "n_samples": n_samples,
                "value": value,
                "undefined": "one class only" if value is None else None,
                "seen_in_training": False,
                "subset": subset,
            }
            for start, value in values.items()
        ]
        with self.engine.begin() as conn:
            evaluations.record_evaluations(conn, rows)

    def _select(self, conn: sa.Connection, trigger: TriggerRow, train_end: datetime | None, n_samples: int) -> None:
        window = {"after": -1, "until": trigger.key, "n_pool": n_samples, "n_samples": n_samples}
        times = {"time_min": train_end and min(START, train_end), "time_max": train_end}
        file = {"path": f"training_sets/{self.run.id}/{trigger.ordinal}.arrow", "checksum": "c"}
        training_sets.record_training_set(conn, trigger.id, {**window, **times, **file})
