"""Stream detectors of the user's own by import path: their detections, errors and laws."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from modyn_dagster.errors import ConfigError, ImportPathError, LawBroken
from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.spec.triggers.detector import AdwinSpec, CustomDetectorSpec
from modyn_dagster.spec.triggers.measured import DetectorTriggerSpec
from modyn_dagster.spec.triggers.trigger import TriggerSpec
from modyn_dagster.triggering import build_policy
from modyn_dagster.triggering.conformance import check_detector, check_policy
from modyn_dagster.triggering.detectors import DetectorReader
from modyn_dagster.triggering.user_code import user_code_errors
from tests.examples import examples
from tests.triggering import user_detectors
from tests.triggering.measured import decide

PATH = user_detectors.__name__
_TRIGGER: TypeAdapter[TriggerSpec] = TypeAdapter(TriggerSpec)


def custom(name: str, **config: Any) -> dict[str, Any]:
    return {"name": "custom", "factory": f"{PATH}:{name}", "config": config}


def reader(name: str, **config: Any) -> DetectorReader:
    return DetectorReader(CustomDetectorSpec.model_validate(custom(name, **config)))


def errors(seed: int, n: int = 400) -> np.ndarray:
    rate = np.where(np.arange(n) < n // 2, 0.1, 0.9)
    return (rng_for(seed, "errors").random(n) < rate).astype(float)


@pytest.mark.parametrize("seed", range(5))
def test_a_detector_written_anew_sounds_where_that_of_river_does(seed):
    values, theirs, sounded = errors(seed), user_detectors.river_upwards(), []
    for index, value in enumerate(values):
        theirs.update(value)
        if theirs.drift_detected:
            sounded.append(index)
    assert sounded
    for after in (0, sounded[0], sounded[0] + 1):
        assert reader("Cusum").read(values, after) == sum(index >= after for index in sounded)


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 99), st.lists(st.integers(0, 400), max_size=6))
def test_neither_cuts_nor_processes_between_them_change_a_detection(seed, cuts):
    values, whole = errors(seed), reader("Cusum", threshold=5)
    one, detections = reader("Cusum", threshold=5), 0
    for start, stop in itertools.pairwise([0, *sorted(cuts), 400]):
        detections += one.read(values[start:stop])
        state = one.state_dict()
        assert state is not None
        one = reader("Cusum", threshold=5)
        one.load_state_dict(state)
    assert detections == whole.read(values) > 0
    assert (one.state_dict(), one.n_read) == (whole.state_dict(), 400)


def test_a_reason_names_the_import_path():
    block = {"kind": "detector", "every": 10, "detector": custom("Cusum")}
    made = decide(block, [0, 0], n=20)
    assert made[-1].reason == f"{PATH}:Cusum is silent on errors"


def block(detector: dict[str, Any], **fields: Any) -> DetectorTriggerSpec:
    return DetectorTriggerSpec.model_validate({"kind": "detector", "detector": detector, **fields})


@pytest.mark.parametrize(
    ("detector", "field", "rule"),
    [
        (custom("nowhere"), "factory", "nowhere"),
        (custom("Cusum", power=2), "config", "refused it: TypeError"),
        (custom("Stateless"), "factory", "must return a detector with the methods update, state_dict and load_state_dict"),
    ],
    ids=["no such name", "config", "no state"],
)
def test_a_check_names_the_field_before_anything_runs(detector, field, rule):
    members = {"own": block(detector).model_dump(), "n": {"kind": "amount", "every": 5}}
    ensemble = {"kind": "ensemble", "rule": "any", "policies": members}
    for spec, place in ((block(detector), "trigger"), (_TRIGGER.validate_python(ensemble), "trigger.policies.own")):
        [error] = user_code_errors(spec, source="pipeline shop")
        assert (error.source, error.field) == ("pipeline shop", f"{place}.detector.{field}")
        assert rule in str(error)
        assert isinstance(error, ImportPathError) == (field == "factory")


@pytest.mark.parametrize("answer", [1, 0.0, None, "yes"], ids=repr)
def test_anything_but_true_or_false_is_an_error_that_names_the_detector(answer):
    with pytest.raises(ConfigError, match=r"must return True or False, not .*user_detectors:Always"):
        reader("Always", answer=answer).read([0.0])
    assert reader("Always", answer=np.True_).read([0.0, 1.0]) == 2


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("Failing", "failed on the value 1.0: KeyError: 'no such state'"),
        ("Binary", "state_dict: must be made of values of JSON"),
        ("Refusing", "took up no state of its own, .*: ValueError: another version"),
        ("Growing", "at most 1,048,576 characters, not"),
    ],
)
def test_a_detector_that_fails_is_named_with_its_error(name, rule):
    with pytest.raises(ConfigError, match=rule) as raised:
        reader(name).read([1.0] * 20)
    assert f"{PATH}:{name}" in str(raised.value)


def test_a_detector_of_river_has_no_state_to_go_on_from():
    river = DetectorReader(AdwinSpec(name="adwin"))
    assert river.state_dict() is None
    with pytest.raises(TypeError, match="adwin has no state"):
        river.load_state_dict({})


@pytest.mark.parametrize("values", ["errors", "scores", "absolute_errors"])
def test_a_detector_that_obeys_the_laws_passes(values):
    check_detector(user_detectors.Cusum, {"threshold": 5}, values=values, samples=200)


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("Forgetful", "a restored detector has the state it was given"),
        ("Refusing", "a restored detector has the state it was given"),
        ("Hidden", "saving and loading state changes no detection"),
        ("Drawing", "no global random state is used"),
        ("Sharing", "detectors share nothing"),
    ],
)
def test_detectors_that_break_a_law_are_told_which(name, law):
    with pytest.raises(LawBroken, match=law) as raised:
        check_detector(getattr(user_detectors, name), samples=200)
    assert raised.value.law == law


@pytest.mark.parametrize(("name", "rule"), [("Failing", "no such state"), ("Binary", "values of JSON"), ("Growing", "at most")])
def test_a_detector_that_fails_is_none(name, rule):
    with pytest.raises(ConfigError, match=rule):
        check_detector(getattr(user_detectors, name), samples=200)


def test_a_detector_that_never_sounds_was_not_checked():
    with pytest.raises(ConfigError, match="sounds on no stream: take longer ones"):
        check_detector(user_detectors.Cusum, {"threshold": 1e9}, samples=100)


def test_the_policy_around_it_obeys_the_laws_of_policies():
    trigger = {"kind": "detector", "every": 10, "detector": custom("Cusum")}
    check_policy(trigger, samples=200)
    assert "Cusum" in repr(build_policy(trigger))
