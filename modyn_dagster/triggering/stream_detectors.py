"""Stream detectors of ``river``, an optional package: ``pip install modyn-dagster[drift-river]``."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError, MissingExtra
from modyn_dagster.randomness import seed_for
from modyn_dagster.spec.triggers.detector import AdwinSpec, DdmSpec, DetectorSpec, EddmSpec, HddmSpec, KswinSpec, PageHinkleySpec


class Listener:
    """A detector that reads a stream piece by piece; however it is cut, it sounds at the same places.

    Attributes:
        spec: of the detector. After it has sounded it starts afresh, as river's do.
        heard: values read so far.
        total: their sum, added up one by one, so that it does not depend on the pieces.

    Raises:
        MissingExtra: river is not installed.
    """

    def __init__(self, spec: DetectorSpec) -> None:
        self.spec = spec
        self.heard = 0
        self.total = 0.0
        self._detector = _fresh(spec)

    def hear(self, values: npt.ArrayLike, after: int = 0) -> int:
        """How often it sounds at an index of at least ``after``, counted from the first of these values.

        Args:
            values: ``[n]``, in order: 0/1 errors, absolute errors or scores. ddm and eddm read 0/1, hddm values in [0, 1].
            after: index from which detections count.

        Raises:
            ConfigError: the detector cannot read such values.
        """
        stream = np.asarray(values, dtype=np.float64)
        _check(self.spec, stream)
        found = 0
        for index, value in enumerate(stream.tolist()):
            self._detector.update(value)
            found += bool(self._detector.drift_detected) and index >= after
            self.total += value
        self.heard += len(stream)
        return found


def _fresh(spec: DetectorSpec) -> Any:
    """River's detector, without type hints there."""
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
            # Alpha only warns; river refuses one below beta.
            return binary.EDDM(spec.warm_start, alpha=max(0.95, spec.beta), beta=spec.beta)
        case HddmSpec():
            make: Callable[..., Any] = binary.HDDM_A if spec.name == "hddm_a" else binary.HDDM_W
            return make(drift_confidence=spec.drift_confidence)


def _check(spec: DetectorSpec, stream: npt.NDArray[np.float64]) -> None:
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
