"""Measuring run of ``<pipeline>/measurement`` in production: measure ahead, so that ticks can decide.

It begins at the live run's cursor with a copy of its policy and its newest model. It measures and decides on the copy, point
after point, until a decision fires or the data end, and writes one row per point. It commits no decision: the sensor decides
again from the rows.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from time import perf_counter
from typing import Final

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.decisions import DecisionRow, MeasurementRow, record_measurements
from modyn_dagster.catalog.runs import RunRow, get_run, live_run
from modyn_dagster.catalog.timings import record_timing
from modyn_dagster.catalog.triggers import unfinished_trigger
from modyn_dagster.errors import RunError, StaleRun
from modyn_dagster.keys import ordinal_of
from modyn_dagster.pipeline.decide.driver import decision_row, decisions_until_fire, timings_by_batch
from modyn_dagster.pipeline.decide.waiting import Patience, patient_events
from modyn_dagster.pipeline.measure.measurement_rows import RecordedMeasurements, measurement_row
from modyn_dagster.pipeline.measure.measurer import Measurer
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.training_stream import training_stream
from modyn_dagster.triggering import Measurement, MeasurementSpec
from modyn_dagster.triggering.build import pipeline_policy
from modyn_dagster.triggering.loop import Measure, MeasurementPending

_SECONDS_BETWEEN: Final = 0.5


@dataclass(frozen=True)
class BatchMeasurements:
    """Completed measurements of all points in one batch; ``decisions`` are those that the sensor will take, in order."""

    run: RunRow
    batch: BatchRow
    decisions: Sequence[DecisionRow]


class _Recording:
    """Measures points without a row and writes their rows at once, so that a killed run loses less than a second's work."""

    def __init__(self, platform: Platform, run: RunRow, measure: Measure) -> None:
        self._platform, self._run, self._measure = platform, run, measure
        self._recorded = RecordedMeasurements(platform, run)
        self._rows: list[MeasurementRow] = []
        self._seconds: dict[int, float] = {}
        self._written = perf_counter()

    def __call__(self, point: int, needs: MeasurementSpec) -> Measurement:
        try:
            return self._recorded(point, needs)
        except MeasurementPending:
            begin = perf_counter()
            measurement = self._measure(point, needs)
        self._seconds[point] = perf_counter() - begin
        self._rows.append(measurement_row(self._run, point, needs, measurement))
        if perf_counter() - self._written > _SECONDS_BETWEEN:
            self.write()
        return measurement

    def write(self) -> None:
        """Write the pending rows; ``StaleRun`` when the run has another live model."""
        with self._platform.transaction() as conn:
            _require_current(self._run, get_run(conn, self._run.id))
            record_measurements(conn, self._rows)
            for timing in timings_by_batch("measure", self._seconds):
                record_timing(conn, self._run.id, None, None, timing)
        self._rows, self._seconds, self._written = [], {}, perf_counter()


def measure_ahead(platform: Platform, pipeline: str) -> Generator[BatchMeasurements, None, None]:
    """Measure for the open live run of a pipeline, batch by batch.

    Nothing is measured while a trigger is unfinished, because its model comes first. Another call measures only the rest.

    Raises:
        RunError: there is no open live run.
        StaleRun: the run has another live model; measurements with the old one are not needed any more.
    """
    with platform.transaction() as conn:
        run = live_run(conn, platform.pipeline(pipeline).name)
        if run is None or not run.is_open:
            raise RunError(f"{pipeline} has no open live run to measure for; its sensor triggering__{pipeline} begins one")
        if unfinished_trigger(conn, run.id) is not None:
            return
    spec = platform.recorded_spec(run)
    view = platform.view_of(run)
    batches = {batch.ordinal: batch for batch in view.batches}
    policy, stream = pipeline_policy(spec), training_stream(view, run.origin)
    policy.load_state_dict(run.policy_state)
    with Measurer(platform) as measurer:
        recording = _Recording(platform, run, measurer.of(run, view))
        decisions = decisions_until_fire(policy, run.cursor, stream, recording)
        for ordinal, group in groupby(decisions, key=lambda decided: ordinal_of(decided.point)):
            rows = [decision_row(run, decided, stream) for decided in group]
            recording.write()
            yield BatchMeasurements(run, batches[ordinal], rows)


def measure_patiently(platform: Platform, pipeline: str, patience: Patience) -> Iterator[BatchMeasurements]:
    """Measure ahead and wait out transient errors; each batch comes once, though every pause begins at the run's cursor again.

    Only a batch that has not come yet is progress. Raises as ``measure_ahead`` does, and ``StillFailing``.
    """
    last = (-1, -1)

    def is_new(measured: BatchMeasurements) -> bool:
        return (measured.run.id, measured.batch.ordinal) > last

    for measured in patient_events(lambda: measure_ahead(platform, pipeline), patience, is_new):
        if is_new(measured):
            last = measured.run.id, measured.batch.ordinal
            yield measured


def _require_current(run: RunRow, current: RunRow) -> None:
    if current.live_model != run.live_model or not current.is_open:
        raise StaleRun(run.title)
