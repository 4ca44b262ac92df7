"""Connection of a process to a Ray cluster, the room on its nodes, and the errors of calls that were made there.

Ray is imported when a process connects. Functions travel by their names, as nodes have the same package installed.
"""

import os
import re
import time
from typing import Any, Final

from modyn_dagster.distributed.messages import unpack_answer
from modyn_dagster.distributed.protocols import Resources
from modyn_dagster.errors import ConfigError, MissingExtra, NoRoom, WorkerLost, shortened, without_secrets

#: What a call takes unless it says otherwise.
ONE_CORE: Final = Resources()
_LOOK_SECONDS: Final = 0.5
_DETAIL: Final = re.compile(r"\t\w+: ")
_LONGEST_REASON: Final = 600
_LOOK_AT_THE_NODE: Final = "look whether that node runs and can be reached (`ray list nodes`)"


def connect(address: str) -> Any:
    """Connect this process to a cluster until it ends, unless it is connected, and return the module ``ray``.

    Args:
        address: ``host:port`` of the head; ``auto`` for the cluster that this machine, or the run, belongs to.

    Raises:
        MissingExtra: the extra ``ray`` is not installed.
        ConfigError: no cluster answers there.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtra("environment", "workers", f"ray:{address}", package="ray", extra="ray") from error
    if not ray.is_initialized():
        try:
            ray.init(address=address, namespace="modyn", log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            rule = f"no Ray cluster can be used there ({error}); start one with `ray start`, with the same token"
            raise ConfigError("environment", "workers", f"ray:{address}", rule) from error
    return ray


def options_of(resources: Resources) -> dict[str, Any]:
    """Options of a task or an actor that takes some resources."""
    return {"num_cpus": resources.cpus, "num_gpus": resources.gpus, "memory": resources.memory or None}


def bundle_of(resources: Resources) -> dict[str, float]:
    """Resources as a placement group names them."""
    found = {"CPU": float(resources.cpus), "GPU": float(resources.gpus), "memory": float(resources.memory)}
    return {name: value for name, value in found.items() if value}


def require_room(ray: Any, work: str, resources: Resources, patience: float) -> None:
    """Return once a node has room for one call.

    Args:
        ray: the module, connected.
        work: names the calls in errors.
        resources: of a call.
        patience: seconds to wait for nodes that are busy.

    Raises:
        NoRoom: no node is large enough, or all stay busy.
    """
    wanted = bundle_of(resources)
    totals = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(_fits(wanted, total) for total in totals):
        largest = ", ".join(sorted({_text(total) for total in totals}))
        raise NoRoom(work, _text(wanted), f"no node of the cluster is large enough; nodes have {largest}")
    end = time.monotonic() + patience
    while not _fits(wanted, free := ray.available_resources()):
        if time.monotonic() >= end:
            raise NoRoom(work, _text(wanted), f"the cluster has been busy for {patience:.0f} s; free: {_text(free)}")
        time.sleep(_LOOK_SECONDS)


def result_of(ray: Any, reference: Any, work: str) -> Any:
    """Result of a packed call; the error that the function raised, or ``WorkerLost`` where its worker or node died."""
    try:
        answer = ray.get(reference)
    except ray.exceptions.RayError as error:
        raise _lost(work, error) from error
    return unpack_answer(answer)


def _fits(wanted: dict[str, float], has: dict[str, float]) -> bool:
    return all(has.get(name, 0.0) >= value for name, value in wanted.items())


def _lost(work: str, error: Exception) -> WorkerLost:
    """Error for a call whose worker or node is gone, with what Ray knows of its end.

    Args:
        work: names the call.
        error: a ``RayError``.
    """
    # Ids of actors and processes stand in lines that begin with a tab, the reason in those after them.
    lines = [line for line in without_secrets(str(error)).splitlines() if line.strip() and not _DETAIL.match(line)]
    text = shortened(" ".join(line.strip() for line in lines), _LONGEST_REASON)
    cause = f"{type(error).__name__}: {text}"
    if "node has died" in text or type(error).__name__ == "NodeDiedError":
        return WorkerLost(work, cause, _LOOK_AT_THE_NODE)
    return WorkerLost(work, cause)


def _text(resources: dict[str, float]) -> str:
    parts = [f"{resources.get('CPU', 0):g} CPUs", f"{resources.get('GPU', 0):g} GPUs"]
    memory = resources.get("memory", 0)
    return ", ".join([*parts, f"{memory / 1e9:.3g} GB memory"] if memory else parts)
