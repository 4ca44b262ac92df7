"""Stream detectors against river driven by hand, and the detector policy."""

import itertools
import sys
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from river import drift
from river.drift import binary

from modyn_dagster.errors import ConfigError, MissingExtra
from modyn_dagster.keys import KeyRange
from modyn_dagster.reproducibility.randomness import rng_for, seed_for
from modyn_dagster.spec.triggers.detector import DetectorSpec
from modyn_dagster.triggering import DetectorNeed, Measured, ModelTrained, build_policy
from modyn_dagster.triggering.detectors import DetectorReader
from tests.triggering.laws import one_batch
from tests.triggering.measured import decide, point_of

#: Since river 0.24 their names have no underscore.
HDDM_A = binary.HDDM_A if hasattr(binary, "HDDM_A") else binary.HDDMA
HDDM_W = binary.HDDM_W if hasattr(binary, "HDDM_W") else binary.HDDMW
_DETECTOR = TypeAdapter(DetectorSpec)
STREAM = one_batch(np.arange(100).astype("datetime64[s]"))

DETECTORS: dict[str, tuple[dict[str, Any], Any]] = {
    "adwin": ({"delta": 0.01}, lambda: drift.ADWIN(delta=0.01)),
    "kswin": ({"alpha": 0.001}, lambda: drift.KSWIN(alpha=0.001, seed=seed_for(0, "kswin"))),
    "page_hinkley": ({"threshold": 20.0}, lambda: drift.PageHinkley(threshold=20.0)),
    "ddm": ({"drift_threshold": 2.5}, lambda: binary.DDM(drift_threshold=2.5)),
    "eddm": ({"beta": 0.97}, lambda: binary.EDDM(alpha=0.97, beta=0.97)),
    "hddm_a": ({"drift_confidence": 0.01}, lambda: HDDM_A(drift_confidence=0.01)),
    "hddm_w": ({"drift_confidence": 0.01}, lambda: HDDM_W(drift_confidence=0.01)),
}


def count_detections(spec: DetectorSpec, values: Any, after: int) -> int:
    return DetectorReader(spec).read(values, after)


def errors(seed: int, n: int = 800) -> np.ndarray:
    """0/1 errors of a model that is wrong once in 10 times, and from the middle on 7 times."""
    rate = np.where(np.arange(n) < n // 2, 0.1, 0.7)
    return (rng_for(seed, "errors").random(n) < rate).astype(float)


@pytest.mark.long
@pytest.mark.parametrize("name", DETECTORS)
def test_detections_are_those_of_river(name):
    fields, make = DETECTORS[name]
    spec = _DETECTOR.validate_python({"name": name, **fields})
    for seed in range(2):
        values, detector, sounded = errors(seed), make(), []
        for index, value in enumerate(values):
            detector.update(value)
            if detector.drift_detected:
                sounded.append(index)
        assert sounded, "the stream has a drift to find"
        for after in (sounded[0], sounded[0] + 1):
            assert count_detections(spec, values, after) == sum(index >= after for index in sounded)


@pytest.mark.parametrize("name", DETECTORS)
def test_however_a_stream_is_cut_the_detector_sounds_at_the_same_places(name):
    fields, _ = DETECTORS[name]
    spec = _DETECTOR.validate_python({"name": name, **fields})
    values = errors(1)
    whole, cut = DetectorReader(spec), DetectorReader(spec)
    bounds = [0, 0, 1, 30, 31, 400, 533, 800]
    pieces = [cut.read(values[start:stop]) for start, stop in itertools.pairwise(bounds)]
    assert sum(pieces) == whole.read(values) > 0
    assert (cut.n_read, cut.total) == (whole.n_read, whole.total) == (800, values.sum())


@pytest.mark.parametrize("name", ["adwin", "page_hinkley", "hddm_a", "hddm_w"])
def test_defaults_are_silent_on_most_streams_without_drift_and_sound_on_those_with_one(name):
    spec = _DETECTOR.validate_python({"name": name})
    stable = [(rng_for(seed, "stable").random(800) < 0.1).astype(float) for seed in range(20)]
    assert sum(count_detections(spec, values, 0) > 0 for values in stable) <= 4
    assert all(count_detections(spec, errors(seed), 400) for seed in range(5))


@pytest.mark.parametrize("name", ["ddm", "eddm"])
def test_detectors_of_errors_refuse_other_values(name):
    with pytest.raises(ConfigError, match="reads 0/1 errors"):
        count_detections(_DETECTOR.validate_python({"name": name}), [0.0, 0.5], 0)
    with pytest.raises(ConfigError, match="it cannot read scores"):
        build_policy({"kind": "detector", "detector": {"name": name}, "stream": "scores"})


@pytest.mark.parametrize("name", ["hddm_a", "hddm_w"])
def test_detectors_with_bounds_refuse_values_outside_them(name):
    spec = _DETECTOR.validate_python({"name": name})
    assert count_detections(spec, [0.0, 0.5, 1.0], 0) == 0
    with pytest.raises(ConfigError, match=r"reads values in \[0, 1\] only"):
        count_detections(spec, [0.0, 1.5], 0)


def test_values_that_are_no_numbers_are_refused():
    spec = _DETECTOR.validate_python({"name": "adwin"})
    for values in ([0.0, np.nan], [[0.0, 1.0]]):
        with pytest.raises(ValueError, match="finite numbers of shape"):
            count_detections(spec, values, 0)


def test_windows_of_kswin_must_not_overlap():
    with pytest.raises(ValidationError, match="stat_size: at most half of window_size, 20"):
        _DETECTOR.validate_python({"name": "kswin", "window_size": 40, "stat_size": 30})


def test_without_river_the_error_names_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "river", None)
    with pytest.raises(MissingExtra, match=r"pip install 'modyn-dagster\[drift-river\]'"):
        count_detections(_DETECTOR.validate_python({"name": "adwin"}), [0.0], 0)


BLOCK = {"kind": "detector", "every": 10, "detector": {"name": "adwin"}, "stream": "scores"}


def test_the_detector_reads_from_the_last_trigger_on_and_counts_from_the_last_point_on():
    policy = build_policy(BLOCK)
    policy.triggered(3)
    policy.model_trained(ModelTrained(3, 4, 1.0))
    needs: list[Any] = []
    for _ in range(2):
        point = point_of(policy, 3, STREAM)
        needs += policy.needs(point).values()
        policy.decide(point, {"": Measured({"detections": 0.0})})
    detector = _DETECTOR.validate_python(BLOCK["detector"])
    assert needs == [
        DetectorNeed(0, KeyRange(3, 9), 3, detector, "scores"),
        DetectorNeed(1, KeyRange(3, 19), 9, detector, "scores"),
    ]


def test_one_detection_is_enough():
    made = decide(BLOCK, [0, 0, 1, 2, np.nan], n=50)
    assert [one.fire for one in made] == [True, False, True, True, False]
    assert [one.score for one in made] == [None, 0.0, 1.0, 2.0, None]
    assert [one.reason for one in made[1:]] == [
        "adwin is silent on scores",
        "adwin sounded 1 time on scores",
        "adwin sounded 2 times on scores",
        "adwin had nothing to read here",
    ]
