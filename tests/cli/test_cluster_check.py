"""Nodes that cannot answer ``cluster check``. No cluster is needed; ``tests/cluster`` has one."""

import threading
import traceback
from typing import Any

import pytest
from ray.exceptions import GetTimeoutError, RaySystemError, RayTaskError

from modyn_dagster.cli.cluster.check import at_once, problem_of
from modyn_dagster.distributed.processes.pool import ProcessPool
from modyn_dagster.errors import ConfigError
from modyn_dagster.pipeline.operate.node import NodeFacts, worker_threads


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


def test_nodes_are_asked_at_the_same_time_and_answer_in_their_order() -> None:
    nodes = [f"node {number}" for number in range(5)]
    all_are_asked = threading.Barrier(len(nodes), timeout=60)

    def ask(node: str) -> str:
        all_are_asked.wait()
        if node == "node 3":
            raise GetTimeoutError("Get timed out")
        return f"{node} answers"

    *answers, silent, last = at_once(ask, nodes)
    assert [answer.result() for answer in [*answers, last]] == [f"{node} answers" for node in nodes if node != "node 3"]
    with pytest.raises(GetTimeoutError):
        silent.result()


def facts(**others: Any) -> NodeFacts:
    given = {"torch": 1, "OpenMP": 1, "BLAS": 8}
    fields: dict[str, Any] = {"host": "a", "python": "3.11", "packages": {}, "processor": "p", "capability": "AVX2", "cores": 8}
    return NodeFacts(**fields | {"threads": given, "gpus": (), "files": "ok", "wrote": "x", "postgres": "ok"} | others)


def test_a_node_with_fewer_threads_of_blas_is_told_which_number_to_set() -> None:
    assert facts().problems(facts(), 0.0, "x") == []
    [problem] = facts(threads={"torch": 1, "OpenMP": 1, "BLAS": 4}).problems(facts(), 0.0, "x")
    assert problem.startswith("threads of BLAS: a worker has 4, and 8 here: results may differ in bits; set OPENBLAS_NUM_THREADS")


@pytest.mark.process
@pytest.mark.soak("distributed")
def test_a_worker_has_the_threads_that_its_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    with ProcessPool(1) as pool:
        found = next(pool.map(worker_threads, [None]))
    assert found == {"torch": 1, "OpenMP": 1, "BLAS": 1}


def test_a_password_in_the_error_of_a_node_is_not_shown() -> None:
    problem = problem_of(RaySystemError("cannot reach postgresql://me:hunter2@host/db"))
    assert "hunter2" not in problem
