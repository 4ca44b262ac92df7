"""Stream detectors of ``river``, an optional package: ``pip install modyn-dagster[drift-river]``."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError, MissingExtra
from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.spec.triggers.detector import (
    AdwinSpec,
    DdmSpec,
    EddmSpec,
    HddmSpec,
    KswinSpec,
    PageHinkleySpec,
    RiverDetectorSpec,
)


class RiverDetector:
    """Detector of river, which starts afresh after a detection.

    Args:
        spec: name and fields.

    Raises:
        MissingExtra: river is not installed.
    """

    def __init__(self, spec: RiverDetectorSpec) -> None:
        self._detector = _river_detector(spec)

    def update(self, value: float) -> bool:
        """Read a value, and tell whether the detector sounds at it."""
        self._detector.update(value)
        return bool(self._detector.drift_detected)


def _river_detector(spec: RiverDetectorSpec) -> Any:
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


def require_readable(spec: RiverDetectorSpec, stream: npt.NDArray[np.float64]) -> None:
    """Raise ``ConfigError`` where a detector of river cannot read the values of a stream, ``[n]``."""
    if isinstance(spec, DdmSpec | EddmSpec):
        readable, rule = ((stream == 0) | (stream == 1)).all(), "reads 0/1 errors of classes only"
    elif isinstance(spec, HddmSpec):
        readable, rule = ((stream >= 0) & (stream <= 1)).all(), "reads values in [0, 1] only"
    else:
        return
    if not readable:
        raise ConfigError("trigger", "detector.name", spec.name, f"{rule}; take adwin, kswin or page_hinkley")
