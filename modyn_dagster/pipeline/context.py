"""What the stages of one trigger work on."""

from dataclasses import dataclass
from time import perf_counter

from modyn_dagster.catalog.runs import RunRow, get_run
from modyn_dagster.catalog.timings import Stage, Timing
from modyn_dagster.catalog.triggers import TriggerRow, find_trigger
from modyn_dagster.data.view import DatasetView
from modyn_dagster.keys import ordinal_of
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.spec.pipeline import PipelineSpec


@dataclass(frozen=True)
class TriggerContext:
    """A trigger, its run, and the dataset as far as the trigger's evidence reaches."""

    platform: Platform
    run: RunRow
    spec: PipelineSpec
    trigger: TriggerRow
    view: DatasetView


def context_of(platform: Platform, pipeline: str, partition_key: str) -> TriggerContext:
    """The context of a trigger partition; ``UnknownName`` when no decision made it."""
    with platform.transaction() as conn:
        trigger = find_trigger(conn, pipeline, partition_key)
        run = get_run(conn, trigger.run_id)
    return trigger_context(platform, run, trigger)


def trigger_context(platform: Platform, run: RunRow, trigger: TriggerRow, view: DatasetView | None = None) -> TriggerContext:
    """The context of a trigger of a run; ``view`` is reused when it is at hand."""
    spec = platform.spec_of(run)
    seen = view if view is not None else platform.view(spec.dataset, until=ordinal_of(trigger.point))
    return TriggerContext(platform, run, spec, trigger, seen)


class Stopwatch:
    """Seconds of a stage for the cost ledger."""

    def __init__(self, stage: Stage) -> None:
        self._stage: Stage = stage
        self._begin = perf_counter()

    @property
    def seconds(self) -> float:
        """Wall seconds since the start."""
        return perf_counter() - self._begin

    def read(self, n_samples: int | None = None, n_bytes: int | None = None) -> Timing:
        """What the ledger gets."""
        return Timing(self._stage, self.seconds, n_samples, n_bytes=n_bytes)
