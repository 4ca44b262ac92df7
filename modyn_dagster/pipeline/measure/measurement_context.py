"""Context of a measurement: run, point, view, newest model, and its activations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.catalog.results.training_sets import TrainingSetRow
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.data.label_files import is_labelled
from modyn_dagster.data.split import CALIBRATE, TRAIN
from modyn_dagster.data.view import DatasetView, mature_keys
from modyn_dagster.data.windows.label_windows import labelled_keys, recorded_window
from modyn_dagster.data.windows.newly_labelled import newly_labelled
from modyn_dagster.keys import KeyRange
from modyn_dagster.pipeline.measure.feature_extractor import FeatureExtractor, WindowValues
from modyn_dagster.spec.triggers.drift import FeaturesSpec
from modyn_dagster.training.data import COLUMNS, EMBEDDING, OUTPUTS
from modyn_dagster.triggering import DriftNeed
from modyn_dagster.triggering.measurement import Need

if TYPE_CHECKING:
    from modyn_dagster.triggering.detectors import DetectorReader


_TAPS: Final[Mapping[str, str]] = {"columns": COLUMNS, "embeddings": EMBEDDING, "outputs": OUTPUTS}


@dataclass(frozen=True, slots=True)
class MeasurementContext:
    """Context that all needs of one point share.

    Attributes:
        run: the run that is measured for.
        point: key of the point.
        view: view that reaches up to the point.
        model: newest model of the run.
        extractor: outputs and activations of the model.
        taps: taps of all needs, so that one pass serves every need.
        trained_at: ordinal of the batch at whose arrival the model's labels were read.
        detectors: detectors that have read with this model.
        details_at: returns the recorded details of the measurement with this model at an earlier point, by path.
        training_set: of the model, where windows go by label; otherwise None.
    """

    run: RunRow
    point: int
    view: DatasetView
    model: ModelRow
    extractor: FeatureExtractor
    taps: frozenset[str]
    trained_at: int
    detectors: "Detectors"
    details_at: Callable[[int], Mapping[str, Mapping[str, Any]]]
    training_set: TrainingSetRow | None = None

    def samples(self, window: KeyRange) -> WindowValues:
        """Compute the taps for the present train samples of a window."""
        return self.extractor.values(self.view, self.view.keys_on(TRAIN, window), self.taps)

    def newly_labelled(self, since: int, until: int) -> WindowValues:
        """Compute the taps for the present train samples of the run that got their first label between two keys.

        Those that had it when the model was trained are left out: its labels were read at a point after its last key.
        """
        chunks = newly_labelled(self.view, since, until, TRAIN, after=self.run.origin)
        keys = np.concatenate([np.empty(0, np.uint64), *(keys for keys, _ in chunks)])
        seen = keys.astype(np.int64) <= self.model.key
        seen[seen] = is_labelled(self.view.up_to(self.trained_at).labels_at(keys[seen]))
        return self.extractor.values(self.view, keys[~seen], self.taps)

    def calibration_samples(self, window: KeyRange, maturity: str | None) -> WindowValues:
        """Compute the taps for those calibration samples of a window with a known label, from an age on.

        The window is that of the model; where windows go by label, its samples are those that got their label in it or since.
        """
        chosen = window if self.training_set is None else recorded_window(self.view, self.training_set)
        keys = labelled_keys(self.view, chosen, CALIBRATE)
        return self.extractor.values(self.view, mature_keys(self.view, keys, maturity), self.taps)

    def calibration_range(self, window: KeyRange) -> KeyRange:
        """Return the range of keys that holds the calibration samples of a window."""
        return window if self.training_set is None else KeyRange(self.training_set.after, self.training_set.until)

    def unseen(self, window: KeyRange) -> KeyRange:
        """Return the part of a window that the model has not trained on."""
        return KeyRange(max(window.after, self.model.key), window.until)

    @property
    def is_class(self) -> bool:
        """True for a model of classes, false for a model of a target."""
        return bool(self.model.architecture["task"] == "class")

    @property
    def quantiles(self) -> Sequence[float]:
        """Quantiles that the outputs of the model stand for; empty for other models."""
        learns: Mapping[str, Any] = self.model.architecture.get("learns", {})
        return tuple(learns.get("quantiles", ()))


def tap_of(features: FeaturesSpec) -> str:
    """Return the tap that gives the features of a drift metric."""
    if features.of == "embeddings" and features.layer is not None:
        return features.layer
    return _TAPS[features.of]


def taps_of(need: Need) -> frozenset[str]:
    """Return the taps that a need requires."""
    return frozenset({tap_of(need.features) if isinstance(need, DriftNeed) else OUTPUTS})


def window_details(window: KeyRange, n_samples: int) -> dict[str, Any]:
    """Describe a window in the details of a measurement."""
    return {"after": window.after, "until": window.until, "samples": n_samples}


#: Detectors by name, each with the part of the window that it has read and the number of samples in it.
Detectors = dict[str, tuple["DetectorReader", KeyRange, int]]
