"""Reader of a stream by a detector, piece by piece."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.spec.triggers.detector import CustomDetectorSpec, DetectorSpec
from modyn_dagster.triggering.detectors.custom import OwnDetector
from modyn_dagster.triggering.detectors.of_river import RiverDetector, require_readable
from modyn_dagster.triggering.policy import State


class DetectorReader:
    """Detector that reads a stream piece by piece; its detections do not depend on the cuts.

    A detector of the user's is made anew after every piece and takes up its state, so that a process that goes on and one that
    begins with a stored state do the same.

    Args:
        spec: of the detector, with its source.

    Attributes:
        n_read: number of values read.
        total: sum of the values, added up one by one, so that it does not depend on the cuts.

    Raises:
        MissingExtra: river is not installed.
        ImportPathError, ConfigError: the detector of the user's cannot be made.

    >>> from modyn_dagster.spec.triggers.detector import AdwinSpec
    >>> reader = DetectorReader(AdwinSpec(name="adwin"))
    >>> reader.read([0.0] * 500), reader.read([1.0] * 500), reader.n_read
    (0, 1, 1000)
    """

    _READ: Final = "n_read"
    _TOTAL: Final = "total"
    _DETECTOR: Final = "detector"

    def __init__(self, spec: DetectorSpec) -> None:
        self.spec = spec
        self.n_read = 0
        self.total = 0.0
        self._detector: OwnDetector | RiverDetector
        self._detector = OwnDetector(spec) if isinstance(spec, CustomDetectorSpec) else RiverDetector(spec)

    def read(self, values: npt.ArrayLike, after: int = 0) -> int:
        """Read values and count the detections among them from index ``after`` on.

        Args:
            values: ``[n]``, in order: 0/1 errors, absolute errors or scores. ddm and eddm read 0/1, hddm values in [0, 1].
            after: index of the first value at which a detection counts.

        Raises:
            ConfigError: the detector cannot read such values, or one of the user's fails.
        """
        stream = np.asarray(values, dtype=np.float64)
        if stream.ndim != 1 or not np.isfinite(stream).all():
            raise ValueError(f"values must be finite numbers of shape [n], not of shape {list(stream.shape)}")
        if not isinstance(self.spec, CustomDetectorSpec):
            require_readable(self.spec, stream)
        detections = 0
        for index, value in enumerate(stream.tolist()):
            detections += self._detector.update(value) and index >= after
            self.total += value
        self.n_read += len(stream)
        if isinstance(self._detector, OwnDetector):
            self._detector = self._detector.restored(self._detector.saved())
        return detections

    def state_dict(self) -> State | None:
        """State that another reader goes on from, as JSON values; None for detectors of river, which have none."""
        if not isinstance(self._detector, OwnDetector):
            return None
        return {self._READ: self.n_read, self._TOTAL: self.total, self._DETECTOR: self._detector.saved()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the state of a reader with the same detector, which is one of the user's."""
        if not isinstance(self._detector, OwnDetector):
            raise TypeError(f"{self.spec.name} has no state")
        self._detector = self._detector.restored(state[self._DETECTOR])
        self.n_read, self.total = int(state[self._READ]), float(state[self._TOTAL])
