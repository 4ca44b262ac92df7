"""Nodes that cannot answer ``cluster check``. No cluster is needed; ``tests/cluster`` has one."""

import traceback

import pytest
from ray.exceptions import GetTimeoutError, RaySystemError, RayTaskError

from modyn_dagster.cli.cluster.check import problem_of
from modyn_dagster.errors import ConfigError


def failed(error: Exception) -> RayTaskError:
    """Error as Ray raises it here for one that a call raised on a node."""
    try:
        raise error
    except (ConfigError, ModuleNotFoundError):
        text = traceback.format_exc()
    return RayTaskError("node_facts", text, error, proctitle="ray::node_facts()", pid=1, ip="10.0.0.2").as_instanceof_cause()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ModuleNotFoundError("No module named 'modyn_dagster'"), "ModuleNotFoundError: No module named 'modyn_dagster'"),
        (ConfigError("environment", "MODYN_CACHE_SIZE", "plenty", "must be a size"), "MODYN_CACHE_SIZE: must be a size"),
    ],
)
def test_a_node_whose_call_fails_is_explained_by_its_error_and_not_by_a_traceback(error: Exception, words: str) -> None:
    problem = problem_of(failed(error))
    assert words in problem
    assert "Traceback" not in problem
    assert "\n" not in problem


def test_a_node_that_says_nothing_is_named_with_the_time_that_it_had() -> None:
    assert problem_of(GetTimeoutError("Get timed out")) == "cannot answer: nothing came within 60 s"


def test_a_password_in_the_error_of_a_node_is_not_shown() -> None:
    problem = problem_of(RaySystemError("cannot reach postgresql://me:hunter2@host/db"))
    assert "hunter2" not in problem
