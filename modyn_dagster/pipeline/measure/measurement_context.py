"""Context of a measurement: run, point, view, newest model, and the activations to look at."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.data.split import TRAIN
from modyn_dagster.data.view import DatasetView
from modyn_dagster.keys import KeyRange
from modyn_dagster.pipeline.measure.feature_extractor import FeatureExtractor, WindowValues
from modyn_dagster.spec.triggers.drift import FeaturesSpec
from modyn_dagster.training.data import COLUMNS, EMBEDDING, OUTPUTS
from modyn_dagster.triggering import DriftNeed
from modyn_dagster.triggering.measurement import Need

if TYPE_CHECKING:
    from modyn_dagster.triggering.stream_detectors import DetectorReader


_TAPS: Final[Mapping[str, str]] = {"columns": COLUMNS, "embeddings": EMBEDDING, "outputs": OUTPUTS}


@dataclass(frozen=True, slots=True)
class MeasurementContext:
    """What all needs of one point share.

    ``taps`` are those of all of them, so that one pass serves every need; ``listeners`` stay as long as the model does.
    """

    run: RunRow
    point: int
    view: DatasetView
    model: ModelRow
    work: FeatureExtractor
    taps: frozenset[str]
    listeners: "Listeners"

    def samples(self, window: KeyRange, side: int = TRAIN) -> WindowValues:
        """What the model makes of the samples of a window on one side of the split, deleted ones left out."""
        return self.work.values(self.view, self.view.keys_on(side, window), self.taps)

    def unseen(self, window: KeyRange) -> KeyRange:
        """The part of a window that the model has not trained on."""
        return KeyRange(max(window.after, self.model.key), window.until)

    @property
    def is_class(self) -> bool:
        """Whether the model tells classes apart, rather than a number."""
        return bool(self.model.architecture["task"] == "class")


def tap_of(features: FeaturesSpec) -> str:
    """Where in the model the features of a drift metric are seen."""
    if features.of == "embeddings" and features.layer is not None:
        return features.layer
    return _TAPS[features.of]


def taps_of(need: Need) -> frozenset[str]:
    """What has to be seen of the model for a need."""
    return frozenset({tap_of(need.features) if isinstance(need, DriftNeed) else OUTPUTS})


def shown(window: KeyRange, n_samples: int) -> dict[str, Any]:
    """A window, for people."""
    return {"after": window.after, "until": window.until, "samples": n_samples}


#: Detectors at work with one model, by what they were asked: each with the samples it has read since the window's beginning.
Listeners = dict[str, tuple["DetectorReader", KeyRange, int]]
