"""Measuring: from what a policy needs at a point and the newest model of its run to the answer.

A replay and a measuring run in production call the same functions on the same blocks with the same seeds and threads, so
that both get the same answer to the last bit.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from modyn_dagster.catalog.results.models import ModelRow, newest_model
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.data.view import DatasetView
from modyn_dagster.errors import CorruptFile, DeletedKey, RunError
from modyn_dagster.pipeline.measure.answers import measure_detector, measure_drift, measure_performance
from modyn_dagster.pipeline.measure.feature_extractor import BlockCache, FeatureExtractor
from modyn_dagster.pipeline.measure.measurement_context import Listeners, MeasurementContext, taps_of
from modyn_dagster.pipeline.measure.measurement_rows import plain_measurement
from modyn_dagster.pipeline.models import predictor_of
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.triggering import (
    DetectorNeed,
    DriftNeed,
    Measured,
    Measurement,
    MeasurementSpec,
    PerformanceNeed,
)
from modyn_dagster.triggering.loop import Measure
from modyn_dagster.triggering.measurement import Need

if TYPE_CHECKING:
    from modyn_dagster.training import Predictor


class Measurer:
    """Measures for one process; what it has computed is kept in memory, within bounds. Close it in the end.

    Attributes:
        work: the model it measures with now; None before the first measurement.
    """

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._cache = BlockCache()
        self._predictor: Predictor | None = None
        self._model: ModelRow | None = None
        self._listeners: Listeners = {}
        self.work: FeatureExtractor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def of(self, run: RunRow, view: DatasetView) -> Measure:
        """Measures with the newest model of ``run``, as the row says it, on a view that reaches every point asked about."""
        return _Measuring(self._measure, run, view)

    def close(self) -> None:
        """End what the model's parser runs in."""
        if self._predictor is not None:
            self._predictor.close()
            self._predictor = None

    def _measure(self, run: RunRow, view: DatasetView, point: int, needs: MeasurementSpec) -> Measurement:
        model, work = self._newest(run, view)
        taps = frozenset().union(*(taps_of(need) for need in needs.values()))
        question = MeasurementContext(run, point, view, model, work, taps, self._listeners)
        return plain_measurement({path: _answer(question, need) for path, need in needs.items()})

    def _newest(self, run: RunRow, view: DatasetView) -> tuple[ModelRow, FeatureExtractor]:
        if self._model is None or self.work is None or self._model.hash != run.previous_model:
            self.close()
            self._model = _newest_model(self._platform, run)
            self._predictor = predictor_of(self._platform, run, self._model, view)
            self.work = FeatureExtractor(self._predictor, self._model.hash, self._cache)
            self._listeners = {}
        return self._model, self.work


class _Measuring:
    """``Measure`` for one run, on a view that is renewed when samples turn out to be gone."""

    def __init__(
        self, measure: Callable[[RunRow, DatasetView, int, MeasurementSpec], Measurement], run: RunRow, view: DatasetView
    ) -> None:
        self._measure, self._run, self._view = measure, run, view

    def __call__(self, point: int, needs: MeasurementSpec) -> Measurement:
        try:
            return self._measure(self._run, self._view, point, needs)
        except (DeletedKey, CorruptFile):
            renewed = self._view.renewed()
            if renewed is self._view:
                raise
            self._view = renewed
            return self._measure(self._run, renewed, point, needs)


def _answer(question: MeasurementContext, need: Need) -> Measured:
    match need:
        case DriftNeed():
            return measure_drift(question, need)
        case PerformanceNeed():
            return measure_performance(question, need)
        case DetectorNeed():
            return measure_detector(question, need)


def _newest_model(platform: Platform, run: RunRow) -> ModelRow:
    model = None
    if run.previous_model is not None:
        with platform.transaction() as conn:
            model = newest_model(conn, run.id, run.previous_model)
    if model is None:
        raise RunError(
            f"{run.title}: its policy wants something measured, but there is no model yet; "
            "a policy may have needs only after `model_trained`"
        )
    return model
