"""Specs of stream detectors: those of ``river``, one block per ``name`` with the fields of river, and those of users."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from modyn_dagster.spec.base import Fraction, ImportPath, Spec


class AdwinSpec(Spec):
    """Adaptive windowing (Bifet & Gavaldà, SDM 2007)."""

    name: Literal["adwin"]
    delta: Fraction = 0.002


class KswinSpec(Spec):
    """Kolmogorov-Smirnov on a sliding window (Raab et al., Neurocomputing 2020)."""

    name: Literal["kswin"]
    alpha: Fraction = 0.005
    window_size: PositiveInt = 100
    stat_size: PositiveInt = 30

    @model_validator(mode="after")
    def _parts_do_not_overlap(self) -> Self:
        if 2 * self.stat_size > self.window_size:
            raise ValueError(f"stat_size: at most half of window_size, {self.window_size // 2}")
        return self


class PageHinkleySpec(Spec):
    """Page-Hinkley test (Page, Biometrika 1954)."""

    name: Literal["page_hinkley"]
    min_instances: PositiveInt = 30
    delta: PositiveFloat = 0.005
    threshold: PositiveFloat = 50.0


class DdmSpec(Spec):
    """Drift detection method on 0/1 errors (Gama et al., SBIA 2004)."""

    name: Literal["ddm"]
    warm_start: PositiveInt = 30
    drift_threshold: PositiveFloat = 3.0


class EddmSpec(Spec):
    """Early drift detection on the distance between errors (Baena-García et al., 2006)."""

    name: Literal["eddm"]
    warm_start: PositiveInt = 30
    beta: Fraction = 0.9


class HddmSpec(Spec):
    """Hoeffding bounds on moving averages, plain (``hddm_a``) or weighted (``hddm_w``) (Frías-Blanco et al., TKDE 2015)."""

    name: Literal["hddm_a", "hddm_w"]
    drift_confidence: Fraction = 0.001


class CustomDetectorSpec(Spec):
    """A detector of the user's: ``factory(**config)`` returns one that reads value after value, with JSON state."""

    name: Literal["custom"]
    factory: ImportPath
    config: dict[str, Any] = {}


RiverDetectorSpec = AdwinSpec | KswinSpec | PageHinkleySpec | DdmSpec | EddmSpec | HddmSpec
DetectorSpec = Annotated[RiverDetectorSpec | CustomDetectorSpec, Field(discriminator="name")]


def title_of(detector: RiverDetectorSpec | CustomDetectorSpec) -> str:
    """Name of a detector in reasons and errors: that of river, or the user's import path."""
    return detector.factory if isinstance(detector, CustomDetectorSpec) else detector.name
