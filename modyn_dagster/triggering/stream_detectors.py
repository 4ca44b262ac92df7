"""Stream detectors of ``river``, an optional package: ``pip install modyn-dagster[drift-river]``."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError, MissingExtra
from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.spec.triggers.detector import AdwinSpec, DdmSpec, DetectorSpec, EddmSpec, HddmSpec, KswinSpec, PageHinkleySpec


class DetectorReader:
    """Detector that reads a stream piece by piece; its detections do not depend on the cuts.

    The detector starts afresh after a detection, as river's detectors do.

    Args:
        spec: of the detector, with its source.

    Attributes:
        n_read: number of values read.
        total: sum of the values, added up one by one, so that it does not depend on the cuts.

    Raises:
        MissingExtra: river is not installed.

    >>> reader = DetectorReader(AdwinSpec(name="adwin"))
    >>> reader.read([0.0] * 500), reader.read([1.0] * 500), reader.n_read
    (0, 1, 1000)
    """

    def __init__(self, spec: DetectorSpec) -> None:
        self.spec = spec
        self.n_read = 0
        self.total = 0.0
        self._detector = _river_detector(spec)

    def read(self, values: npt.ArrayLike, after: int = 0) -> int:
        """Read values and count the detections among them from index ``after`` on.

        Args:
            values: ``[n]``, in order: 0/1 errors, absolute errors or scores. ddm and eddm read 0/1, hddm values in [0, 1].
            after: index of the first value at which a detection counts.

        Raises:
            ConfigError: the detector cannot read such values.
        """
        stream = np.asarray(values, dtype=np.float64)
        _check_values(self.spec, stream)
        detections = 0
        for index, value in enumerate(stream.tolist()):
            self._detector.update(value)
            detections += bool(self._detector.drift_detected) and index >= after
            self.total += value
        self.n_read += len(stream)
        return detections


def _river_detector(spec: DetectorSpec) -> Any:
    """Detector of river, which has no type hints."""
    if find_spec("river") is None:
        raise MissingExtra("trigger", "detector.name", spec.name, package="river", extra="drift-river")
    from river import drift
    from river.drift import binary

    match spec:
        case AdwinSpec():
            return drift.ADWIN(delta=spec.delta)
        case KswinSpec():
            seed = seed_for(0, "kswin")
            return drift.KSWIN(spec.alpha, spec.window_size, spec.stat_size, seed=seed)
        case PageHinkleySpec():
            return drift.PageHinkley(spec.min_instances, spec.delta, spec.threshold)
        case DdmSpec():
            return binary.DDM(warm_start=spec.warm_start, drift_threshold=spec.drift_threshold)
        case EddmSpec():
            # Alpha only sets warnings; river refuses an alpha below beta.
            return binary.EDDM(spec.warm_start, alpha=max(0.95, spec.beta), beta=spec.beta)
        case HddmSpec():
            # Since river 0.24 their names have no underscore.
            names = ("HDDM_A", "HDDMA") if spec.name == "hddm_a" else ("HDDM_W", "HDDMW")
            hddm: Callable[..., Any] = next(getattr(binary, name) for name in names if hasattr(binary, name))
            return hddm(drift_confidence=spec.drift_confidence)


def _check_values(spec: DetectorSpec, stream: npt.NDArray[np.float64]) -> None:
    if stream.ndim != 1 or not np.isfinite(stream).all():
        raise ValueError(f"values must be finite numbers of shape [n], not of shape {list(stream.shape)}")
    if isinstance(spec, DdmSpec | EddmSpec):
        readable, rule = ((stream == 0) | (stream == 1)).all(), "reads 0/1 errors of classes only"
    elif isinstance(spec, HddmSpec):
        readable, rule = ((stream >= 0) & (stream <= 1)).all(), "reads values in [0, 1] only"
    else:
        return
    if not readable:
        raise ConfigError("trigger", "detector.name", spec.name, f"{rule}; take adwin, kswin or page_hinkley")
