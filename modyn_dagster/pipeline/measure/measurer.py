"""Measurer: answers the needs of a policy at a point with the live model of its run.

A replay and a measuring run in production call the same functions on the same blocks with the same seeds and threads, so
their answers are bit-identical.
"""

from functools import partial
from typing import TYPE_CHECKING, Self

from modyn_dagster.catalog.results.models import ModelRow, newest_model
from modyn_dagster.catalog.results.training_sets import TrainingSetRow, find_training_set
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.triggers import get_trigger
from modyn_dagster.data.view import DatasetView
from modyn_dagster.errors import CorruptFile, DeletedKey, RunError
from modyn_dagster.keys import ordinal_of
from modyn_dagster.pipeline.measure.answers import answer_drift, answer_performance
from modyn_dagster.pipeline.measure.detections import answer_detector
from modyn_dagster.pipeline.measure.feature_extractor import BlockCache, FeatureExtractor
from modyn_dagster.pipeline.measure.measurement_context import Detectors, MeasurementContext, taps_of
from modyn_dagster.pipeline.measure.measurement_rows import json_measurement, recorded_details
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
    """Measurer of one process, with a bounded cache of model outputs. Close it in the end.

    Attributes:
        extractor: outputs of the model in use; None before the first measurement.
    """

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._cache = BlockCache()
        self._predictor: Predictor | None = None
        self._model: ModelRow | None = None
        self._training_set: TrainingSetRow | None = None
        self._trained_at = -1
        self._detectors: Detectors = {}
        self.extractor: FeatureExtractor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def of(self, run: RunRow, view: DatasetView) -> Measure:
        """Return a ``Measure`` with the live model in the run's row, on a view that reaches every point asked for.

        The view is renewed when it turns out that samples were deleted.
        """

        def measure(point: int, needs: MeasurementSpec) -> Measurement:
            nonlocal view
            try:
                return self._measure(run, view, point, needs)
            except (DeletedKey, CorruptFile):
                renewed = view.renewed()
                if renewed is view:
                    raise
                view = renewed
                return self._measure(run, view, point, needs)

        return measure

    def close(self) -> None:
        """Close the predictor and its parser processes."""
        if self._predictor is not None:
            self._predictor.close()
            self._predictor = None

    def _measure(self, run: RunRow, view: DatasetView, point: int, needs: MeasurementSpec) -> Measurement:
        # Labels that arrived after the point count for no decision at it.
        view = view.up_to(ordinal_of(point))
        model, extractor = self._live(run, view)
        taps = frozenset().union(*(taps_of(need) for need in needs.values()))
        details_at = partial(recorded_details, self._platform, run, model.hash)
        known = (self._trained_at, self._detectors, details_at, self._training_set)
        context = MeasurementContext(run, point, view, model, extractor, taps, *known)
        return json_measurement({path: _answer(context, need) for path, need in needs.items()})

    def _live(self, run: RunRow, view: DatasetView) -> tuple[ModelRow, FeatureExtractor]:
        if self._model is None or self.extractor is None or self._model.hash != run.live_model:
            self.close()
            self._model = _live_model(self._platform, run)
            with self._platform.transaction() as conn:
                self._trained_at = ordinal_of(get_trigger(conn, self._model.trigger_id).point)
            self._training_set = _set_by_label(self._platform, run, self._model)
            self._predictor = predictor_of(self._platform, run, self._model, view)
            self.extractor = FeatureExtractor(self._predictor, self._model.hash, self._cache)
            self._detectors = {}
        return self._model, self.extractor


def _set_by_label(platform: Platform, run: RunRow, model: ModelRow) -> TrainingSetRow | None:
    """Training set of a model, where the windows of its run go by label."""
    if not platform.spec_of(run).selection.by_label:
        return None
    with platform.transaction() as conn:
        return find_training_set(conn, model.trigger_id)


def _answer(context: MeasurementContext, need: Need) -> Measured:
    match need:
        case DriftNeed():
            return answer_drift(context, need)
        case PerformanceNeed():
            return answer_performance(context, need)
        case DetectorNeed():
            return answer_detector(context, need)


def _live_model(platform: Platform, run: RunRow) -> ModelRow:
    model = None
    if run.live_model is not None:
        with platform.transaction() as conn:
            model = newest_model(conn, run.id, run.live_model)
    if model is None:
        raise RunError(
            f"{run.title}: its policy needs a measurement, but there is no model yet; "
            "a policy may have needs only after `model_trained`"
        )
    return model
