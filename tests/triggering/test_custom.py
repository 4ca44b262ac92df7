"""Custom policies and vote rules by import path."""

import numpy as np
import pytest

from modyn_dagster.errors import ConfigError, ImportPathError
from modyn_dagster.triggering import build_policy, simulate
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
