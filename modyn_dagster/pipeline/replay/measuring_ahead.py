"""Measurements of the next points of a replay, in workers.

Between two trainings all points are measured with the same model. A copy of the policy, which is told that every score is
undefined and therefore fires nothing, names the points to come and their needs; a pool measures them. The walk asks point after
point, and takes an answer only if it is for the same point, the same needs, the same model and the same samples. In every other
case it measures by itself, so a wrong guess costs time, and changes no result.
"""

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from modyn_dagster.catalog.runs import RunRow, get_run
from modyn_dagster.data.split import TRAIN
from modyn_dagster.data.view import DatasetView
from modyn_dagster.distributed.protocols import Pool, Resources
from modyn_dagster.errors import one_line
from modyn_dagster.keys import ordinal_of
from modyn_dagster.pipeline.measure.measurement_rows import needs_digest
from modyn_dagster.pipeline.measure.measurer import Measurer
from modyn_dagster.pipeline.platform import Platform, worker_platform
from modyn_dagster.pipeline.training_stream import training_stream
from modyn_dagster.settings import Settings
from modyn_dagster.triggering import DriftNeed, Measured, Measurement, MeasurementSpec, PerformanceNeed
from modyn_dagster.triggering.build import pipeline_policy
from modyn_dagster.triggering.loop import Measure, MeasurementPending, drive_policy
from modyn_dagster.triggering.measurement import COVERAGE, Need

logger = logging.getLogger(__name__)

#: Guesses in a row that were not what the policy asked for next, after which the walk measures by itself.
_MOST_WASTED: Final = 3


@dataclass(frozen=True, slots=True)
class PointMeasurement:
    """Measurement of one point.

    Attributes:
        settings: of the replay's process.
        run_id: run of the replay.
        model: hash of its newest model.
        until: ordinal of the last batch of the view.
        point: key of the point.
        needs: needs of the policy there.
    """

    settings: Settings
    run_id: int
    model: str
    until: int
    point: int
    needs: MeasurementSpec

    def __str__(self) -> str:
        return f"the measurement at key {self.point} of run {self.run_id}, made ahead"


class MeasuringAhead:
    """Answers of workers for one walk of a run. Without a pool, and for detectors, which read point after point, it has none.

    Args:
        platform: the project.
        pool: workers that do nothing else meanwhile; None for none.
    """

    def __init__(self, platform: Platform, pool: Pool | None) -> None:
        self._platform, self._pool = platform, pool if pool is not None and pool.workers > 1 else None
        self._expected: deque[tuple[int, str]] = deque()
        self._results: Iterator[Measurement] = iter(())
        self._model: str | None = None
        self._view: DatasetView | None = None
        self._wasted = 0

    def of(self, run: RunRow, view: DatasetView, measure: Measure) -> Measure:
        """Return ``measure``, with answers from workers where there are some.

        Args:
            run: the run at the beginning of a step.
            view: dataset up to the end of the replay, without samples deleted by now.
            measure: measures in this process.
        """
        spec = self._platform.spec_of(run)
        if self._pool is None or spec.training.device != "cpu" or run.live_model is None:
            return measure
        if run.live_model != self._model or view is not self._view:
            self.drop()
            self._model, self._view = run.live_model, view

        def measured(point: int, needs: MeasurementSpec) -> Measurement:
            answer = self._answer(run, view, point, needs) if all(_can_be_dealt(need) for need in needs.values()) else None
            return measure(point, needs) if answer is None else answer

        return measured

    def drop(self) -> None:
        """Drop all guesses; measurements that have not begun are not made."""
        close = getattr(self._results, "close", None)
        if close is not None:
            close()
        self._results = iter(())
        self._expected.clear()

    def _answer(self, run: RunRow, view: DatasetView, point: int, needs: MeasurementSpec) -> Measurement | None:
        """Answer of a worker; None where this process has to measure."""
        if self._pool is None:
            return None
        asked = point, needs_digest(needs)
        # Guesses that a training ended are gone already, and were not wrong.
        is_right = not self._expected or self._expected[0] == asked
        if self._expected and is_right:
            self._wasted = 0
        else:
            self.drop()
            self._results = self._pool.map(measure_in_worker, self._points(run, view, point), Resources(cpus=run.threads))
        try:
            answer = next(self._results, None)
        except Exception as error:  # noqa: BLE001 - this process measures, and meets the error if it comes again
            logger.warning("the point at key %d of %s is measured again: %s", point, run.title, one_line(error))
            answer = None
        if answer is None or self._expected.popleft() != asked:
            is_right, answer = False, None
            self.drop()
        self._wasted += not is_right
        if self._wasted >= _MOST_WASTED:
            logger.warning("%s measures without workers: the next points are not those that were guessed", run.title)
            self.drop()
            self._pool = None
        return answer

    def _points(self, run: RunRow, view: DatasetView, first: int) -> Iterator[PointMeasurement]:
        """Yield the points to measure from a first one on, as long as nothing fires."""
        policy = pipeline_policy(self._platform.recorded_spec(run))
        policy.load_state_dict(run.policy_state)
        stream = training_stream(view, run.origin)
        place = self._platform.settings, run.id, str(run.live_model), view.last_ordinal
        with suppress(MeasurementPending):
            for point, decision, needs, _ in drive_policy(policy, run.cursor, stream, partial(_undefined, view)):
                if needs and point >= first:
                    self._expected.append((point, needs_digest(needs)))
                    yield PointMeasurement(*place, point, needs)
                if decision.fire:
                    return


def measure_in_worker(item: PointMeasurement) -> Measurement:
    """Measure a point in a worker's process, which keeps the model for the next ones."""
    platform = worker_platform(item.settings)
    with platform.transaction() as conn:
        run = replace(get_run(conn, item.run_id), previous_model=item.model, champion_model=item.model)
    view = platform.view_of(run, until=item.until)
    return _measurer(item.settings, item.run_id).of(run, view)(item.point, item.needs)


#: The newest measurer of a worker's process, by its settings and run: runs may read one model in other ways.
_measurers: Final[dict[tuple[Settings, int], Measurer]] = {}


def _measurer(settings: Settings, run_id: int) -> Measurer:
    """Measurer of a worker's process for a run; that of an earlier run is closed."""
    if (settings, run_id) not in _measurers:
        while _measurers:
            _measurers.popitem()[1].close()
        _measurers[settings, run_id] = Measurer(worker_platform(settings))
    return _measurers[settings, run_id]


def _undefined(view: DatasetView, point: int, needs: MeasurementSpec) -> Mapping[str, Measured]:
    """Answers without a score, which fire nothing, and which no policy remembers.

    Label coverage, which policies wait for, is in them: it needs no model.
    """
    return {path: Measured(dict.fromkeys(_names(point, need)) | _coverage(view, point, need)) for path, need in needs.items()}


def _coverage(view: DatasetView, point: int, need: Need) -> dict[str, float]:
    view = view.up_to(ordinal_of(point))
    if not isinstance(need, PerformanceNeed) or need.first_labels or view.label_position is None:
        return {}
    known = view.count(need.window, TRAIN, labelled=True)
    return {COVERAGE: known / max(1, view.count(need.window, TRAIN))}


def _names(point: int, need: Need) -> list[str]:
    match need:
        case DriftNeed(metrics=metrics):
            return [*metrics]
        case PerformanceNeed(metric=metric):
            return [metric, "n_samples", "expected_accuracy"]
        case _:
            raise MeasurementPending(point)


def _can_be_dealt(need: Need) -> bool:
    """Test that a need is answered from its windows alone, on the processor."""
    return isinstance(need, PerformanceNeed) or (isinstance(need, DriftNeed) and need.features.device == "cpu")
