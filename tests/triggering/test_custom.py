"""Custom policies and vote rules by import path."""

import numpy as np
import pytest
from pydantic import TypeAdapter

from modyn_dagster.errors import ConfigError, ImportPathError, LawBroken
from modyn_dagster.spec.triggers.trigger import TriggerSpec
from modyn_dagster.triggering import build_policy, simulate
from modyn_dagster.triggering.conformance import check_policy
from modyn_dagster.triggering.user_code import user_code_errors
from tests.triggering import user_policies
from tests.triggering.wrappers.test_ensemble import amount, ensemble, fires, seconds

USER_CODE = user_policies.__name__


def custom(name: str, **config: object) -> dict:
    return {"kind": "custom", "factory": f"{USER_CODE}:{name}", "config": config}


def test_a_factory_gives_the_policy_its_config():
    decisions = simulate(build_policy(custom("EveryNth", every=4)), np.arange(10))
    assert [(decision.index, decision.reason) for decision in decisions] == [(3, "4 more samples"), (7, "4 more samples")]


def test_max_triggers_holds_for_a_policy_of_ones_own():
    decisions = simulate(build_policy({**custom("EveryNth", every=2), "max_triggers": 1}), np.arange(10))
    assert [decision.index for decision in decisions if decision.fire] == [1]


def test_anything_but_a_policy_is_an_error_naming_the_path():
    with pytest.raises(ImportPathError, match=r"user_policies:no_policy.*|must return a TriggeringPolicy.*not str") as caught:
        build_policy(custom("no_policy"))
    assert "must return a TriggeringPolicy" in str(caught.value)
    assert caught.value.value == f"{USER_CODE}:no_policy"


def test_a_factory_that_refuses_its_config_is_named_with_its_reason():
    with pytest.raises(ConfigError, match=r"user_policies:EveryNth refused it: TypeError: .*evry"):
        build_policy(custom("EveryNth", evry=4))


def test_a_name_that_does_not_exist_is_an_error_naming_the_path():
    with pytest.raises(ImportPathError, match="Nowhere"):
        build_policy(custom("Nowhere"))


@pytest.mark.parametrize("factory", ["no_colon", "no.such.module:f", ""], ids=repr)
def test_impossible_paths_are_refused(factory):
    with pytest.raises(ConfigError):
        build_policy({"kind": "custom", "factory": factory})


def test_a_callable_by_import_path_counts_votes():
    rule = {"factory": f"{USER_CODE}:named_vote", "config": {"decisive": "b"}}
    assert fires(ensemble(rule, a=amount(2), b=amount(5)), seconds(*range(12))) == [4, 9]


def test_a_callable_that_returns_no_bool_is_an_error_naming_it():
    spec = ensemble({"factory": f"{USER_CODE}:counting_vote"}, a=amount(2))
    with pytest.raises(ImportPathError, match=r"must return a bool, not int .*counting_vote"):
        simulate(build_policy(spec), seconds(*range(3)))


def test_a_callable_that_fails_is_an_error_naming_it():
    spec = ensemble({"factory": f"{USER_CODE}:named_vote", "config": {"decisive": "z"}}, a=amount(2))
    with pytest.raises(ConfigError, match=r"named_vote failed on votes .*KeyError"):
        simulate(build_policy(spec), seconds(*range(3)))


def judged_by(name: str, **config: object) -> dict:
    decision = {"rule": "custom", "factory": f"{USER_CODE}:{name}", "config": config}
    windows = {"by": "amount", "reference": 30, "current": 20}
    return {"kind": "drift", "every": 10, "windows": windows, "metrics": {"mmd": {"metric": "mmd"}}, "decision": decision}


@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_a_criterion_of_ones_own_decides_as_the_built_in_one_that_it_is(direction):
    own = judged_by("bounded", limit=0.5)
    own["decision"]["direction"] = direction
    built_in = own | {"decision": {"rule": "threshold", "value": 0.5, "direction": direction}}
    scores = [0.0, 0.1, 0.6, 0.5, 0.4, 0.9]
    expected, found = (simulate(build_policy(block), np.arange(60), scores=scores) for block in (built_in, own))
    assert found == expected
    assert {decision.fire for decision in found} == {True, False}


def test_a_criterion_for_performance_is_told_that_lower_is_worse():
    trigger = {"kind": "performance", "every": 10, "decision": judged_by("bounded", limit=0.5)["decision"]}
    decisions = simulate(build_policy(trigger), np.arange(60), scores=[0.9, 0.9, 0.4, 0.9, 0.9, 0.9])
    assert [decision.score for decision in decisions if decision.fire and decision.score is not None] == [0.4]


def test_what_is_no_criterion_and_what_gives_no_verdict_is_named():
    with pytest.raises(ImportPathError, match=r"must return a Criterion of .*, not str"):
        build_policy(judged_by("no_criterion"))
    with pytest.raises(ConfigError, match=r"refused it: TypeError: .*limt"):
        build_policy(judged_by("bounded", limt=1))
    with pytest.raises(TypeError, match=r"Impatient\.judge_defined must return a Verdict, not bool"):
        simulate(build_policy(judged_by("Impatient")), np.arange(60), scores=[0.1] * 6)


def test_a_criterion_that_keeps_what_it_remembers_to_itself_breaks_a_law():
    with pytest.raises(LawBroken, match="saving and loading state changes no decision"):
        check_policy(judged_by("Secretive"))


def test_a_check_names_the_field_of_a_criterion_at_any_depth():
    nested = {
        "kind": "ensemble",
        "rule": "any",
        "policies": {"a": judged_by("no_criterion"), "b": {"kind": "amount", "every": 9}},
    }
    spec = TypeAdapter(TriggerSpec).validate_python(nested)
    [error] = user_code_errors(spec, source="pipeline shop")
    assert (error.source, error.field) == ("pipeline shop", "trigger.policies.a.decision.factory")
