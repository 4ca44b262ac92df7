"""Ensembles by example."""

import json

import numpy as np
import pytest

from modyn_dagster.errors import ConfigError
from modyn_dagster.keys import ORIGIN, KeyRange
from modyn_dagster.triggering import DriftNeed, Measured, ModelTrained, build_policy, simulate
from tests.triggering import user_policies
from tests.triggering.laws import one_batch

USER_CODE = user_policies.__name__


def seconds(*values: int) -> np.ndarray:
    return np.array(values, dtype="datetime64[s]")


def amount(every: int) -> dict:
    return {"kind": "amount", "every": every}


def ensemble(rule: object, **policies: dict) -> dict:
    return {"kind": "ensemble", "policies": policies, "rule": rule}


def fires(spec: dict, timestamps: np.ndarray, **options) -> list[int]:
    return [decision.index for decision in simulate(build_policy(spec), timestamps, **options) if decision.fire]


def drift(every: int, value: float = 0.5) -> dict:
    windows = {"by": "amount", "reference": 50, "current": 50}
    decision = {"rule": "threshold", "value": value}
    return {"kind": "drift", "every": every, "windows": windows, "metrics": {"m": {"metric": "mmd"}}, "decision": decision}


def test_any_fires_where_a_member_does():
    assert fires(ensemble("any", a=amount(4), b=amount(6)), seconds(*range(14))) == [3, 5, 7, 11]


def test_members_that_share_a_point_make_one_decision():
    decisions = simulate(build_policy(ensemble("any", a=amount(4), b=amount(6))), seconds(*range(12)))
    assert [decision.index for decision in decisions] == [3, 5, 7, 11]
    assert decisions[-1].details["votes"] == {"a": True, "b": True}


def test_a_fire_stays_latched_until_the_decision_that_completes_it():
    # a votes at 4, 8, …; b at 10, 20: b completes the votes, which are cleared then; a goes on counting from the start.
    assert fires(ensemble("all", a=amount(4), b=amount(10)), seconds(*range(30))) == [9, 19, 29]


def test_firing_does_not_reset_the_counters_of_members():
    # Were b's counter reset at 3, 7, …, it would never reach 6.
    assert 5 in fires(ensemble("any", a=amount(4), b=amount(6)), seconds(*range(8)))


def test_majority_is_more_than_half():
    spec = ensemble("majority", a=amount(2), b=amount(3), c=amount(7), d=amount(11))
    assert fires(spec, seconds(*range(11))) == [6, 10]


def test_at_least_counts_votes():
    spec = ensemble({"at_least": 2}, a=amount(2), b=amount(3), c=amount(7), d=amount(11))
    assert fires(spec, seconds(*range(8))) == [2, 5, 7]


def test_the_key_is_the_largest_that_a_member_voted_for():
    # The tick at 10 s is noticed at sample 4 and trains up to sample 3; the amount policy voted for sample 2 before.
    spec = ensemble("all", a=amount(3), t={"kind": "time", "every": "10s"})
    assert fires(spec, seconds(0, 1, 2, 3, 12)) == [3]


def test_a_vote_for_what_is_trained_already_is_void():
    behind = {"kind": "custom", "factory": f"{USER_CODE}:OneBehind", "config": {"every": 4}}
    decisions = simulate(build_policy(ensemble("any", a=amount(3), b=behind)), seconds(*range(8)))
    # b notices at sample 3, too late, what ends at 2; and at 7 what ends at 6.
    assert [(decision.fire, decision.index) for decision in decisions] == [(True, 2), (False, 3), (True, 5), (True, 6)]


def test_score_arrays_are_indexed_by_each_members_own_points():
    # d's points are 4, 8, 12 (0-based 3, 7, 11); its first fires, for there is no model; its third score is above 0.5.
    spec = ensemble("any", a=amount(5), d=drift(4))
    found = fires(spec, seconds(*range(12)), scores={"d": [0.0, 0.1, 0.9]})
    assert found == [3, 4, 9, 11]


def test_ensembles_nest_and_inner_votes_stand_until_a_trigger_is_made():
    inner = ensemble("all", a=amount(2), b=amount(3))
    spec = ensemble("all", inner=inner, c=amount(7))
    # inner fires at 3 (and at every vote after), c at 7: 7 completes; then inner needs both votes again.
    assert fires(spec, seconds(*range(14))) == [6, 13]


def test_needs_and_answers_are_passed_by_path():
    spec = ensemble("any", outer=ensemble("any", d=drift(2), e=drift(3)), f=drift(6))
    policy = build_policy(spec)
    stream = one_batch(seconds(*range(6)))
    assert policy.next_point(ORIGIN, stream) == 1
    assert policy.decide(1).fire
    policy.triggered(1)
    policy.model_trained(ModelTrained(1, 2, 0.0))
    assert policy.next_point(1, stream) == 2
    assert list(policy.needs(2)) == ["outer/e"]
    assert not policy.decide(2, {"outer/e": Measured({"m": 0.4})}).fire
    assert policy.next_point(2, stream) == 3
    policy.decide(3, {"outer/d": Measured({"m": 0.4})})
    assert policy.next_point(3, stream) == 5
    assert sorted(policy.needs(5)) == ["f", "outer/d", "outer/e"]
    answers = {path: Measured({"m": 0.9 if path == "f" else 0.1}) for path in policy.needs(5)}
    decision = policy.decide(5, answers)
    assert decision.fire
    assert decision.details["votes"] == {"outer": False, "f": True}


def test_the_reason_names_the_votes():
    decisions = simulate(build_policy(ensemble("all", a=amount(2), b=amount(3))), seconds(*range(3)))
    assert [decision.reason for decision in decisions] == [
        "1 of 2 voted, all: a (2 samples)",
        "2 of 2 voted, all: a (2 samples), b (3 samples)",
    ]
    assert [(decision.score, decision.threshold) for decision in decisions] == [(1.0, 2.0), (2.0, 2.0)]
    assert json.loads(json.dumps(decisions[1].details)) == {"votes": {"a": True, "b": True}}


def test_a_suppressed_fire_leaves_the_votes_and_the_next_vote_fires_again():
    spec = {"kind": "minimum_samples", "samples": 8, "policy": ensemble("all", a=amount(3), b=amount(5))}
    # Complete at 5, too early; a votes at 6 (too early) and 9.
    assert fires(spec, seconds(*range(10))) == [8]


def test_votes_that_stand_do_not_fire_at_a_decision_that_brings_none():
    policy = build_policy(ensemble("any", a=amount(3), d=drift(2)))
    stream = one_batch(seconds(*range(6)))
    assert policy.next_point(ORIGIN, stream) == 1
    assert policy.decide(1).fire
    policy.triggered(1)
    policy.model_trained(ModelTrained(1, 2, 0.0))
    assert policy.next_point(1, stream) == 2
    # Suppressed by whatever wraps the ensemble: no trigger is made.
    assert policy.decide(2).fire
    assert policy.next_point(2, stream) == 3
    decision = policy.decide(3, {"d": Measured({"m": 0.1})})
    assert not decision.fire
    assert decision.details["votes"] == {"a": True, "d": False}


def test_triggers_reach_the_members_whoever_voted():
    policy = build_policy(ensemble("any", a=amount(3), d=drift(2)))
    stream = one_batch(seconds(*range(6)))
    for point in (1, 2):
        assert policy.next_point(point - 1, stream) == point
        assert policy.decide(point).fire
        policy.triggered(point)
        policy.model_trained(ModelTrained(point, 1, 0.0))
    # a triggered at 2: d compares what came after it with what came before.
    assert policy.next_point(2, stream) == 3
    need = policy.needs(3)["d"]
    assert isinstance(need, DriftNeed)
    assert (need.reference.until, need.current) == (2, KeyRange(2, 3))


def test_a_trigger_by_hand_clears_the_votes():
    policy = build_policy(ensemble("all", a=amount(2), b=amount(3)))
    stream = one_batch(seconds(*range(6)))
    assert policy.next_point(ORIGIN, stream) == 1
    policy.decide(1)
    policy.triggered(1)
    assert policy.next_point(1, stream) == 2
    assert not policy.decide(2).fire


@pytest.mark.parametrize(
    "spec",
    [ensemble("any"), ensemble("most", a=amount(1)), ensemble({"at_least": 3}, a=amount(1), b=amount(2)), ensemble("any", a={})],
    ids=["no members", "unknown rule", "can never agree", "a member that is none"],
)
def test_impossible_ensembles_are_refused(spec):
    with pytest.raises(ConfigError):
        build_policy(spec)


def test_deciding_at_a_point_that_was_not_named_is_an_error():
    with pytest.raises(ValueError, match="must follow the next_point"):
        build_policy(ensemble("any", a=amount(2))).decide(7)
