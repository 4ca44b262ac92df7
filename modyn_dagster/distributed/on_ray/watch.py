"""Results of calls on a cluster as they are waited for, and a line in the log where a node holds them up."""

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from modyn_dagster.distributed.codec import decode, encode
from modyn_dagster.distributed.messages import answer_call
from modyn_dagster.distributed.on_ray.cluster import result_of
from modyn_dagster.distributed.on_ray.pace import Pace

logger = logging.getLogger(__name__)

#: Seconds between two looks at calls that are waited for, and of one question to the dashboard, at most.
_LOOK_SECONDS: Final = 5.0
#: Seconds between two questions to the dashboard at most, for a call that was not under way yet.
_MOST_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class SentCall:
    """A call on its way: references to where it was made and how long it took, and to its answer."""

    record: Any
    answer: Any


class Watch:
    """Waits for the calls of one function, and compares the nodes that make them.

    Args:
        ray: the module, connected.
        work: names the function.
        least: seconds that a call takes at least before it counts as slow.
    """

    def __init__(self, ray: Any, work: str, least: float) -> None:
        self._ray, self._work, self._least = ray, work, least
        self._pace = Pace(work, least)
        self._counted: set[Any] = set()

    def result(self, call: SentCall, others: Sequence[SentCall]) -> Any:
        """Wait for a call, while others are made too; see ``result_of`` for errors."""
        begin, next_question = time.monotonic(), 0.0
        while not self._ray.wait([call.answer], timeout=min(_LOOK_SECONDS, self._least))[0]:
            self._count(others)
            waited = time.monotonic() - begin
            if waited >= next_question and self._pace.is_overdue(waited):
                next_question = waited + min(waited, _MOST_SECONDS)
                place = _place_of(self._ray, call.answer)
                _say(None if place is None else self._pace.runs(*place))
        self._count([call, *others])
        self._counted.discard(call.record)
        return result_of(self._ray, call.answer, self._work)

    def _count(self, calls: Sequence[SentCall]) -> None:
        """Count calls that are over, each once."""
        waiting = [call.record for call in calls if call.record not in self._counted]
        if not waiting:
            return
        done, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0)
        self._counted.update(done)
        for record in done:
            # What went wrong is said where the result is asked for.
            with suppress(self._ray.exceptions.RayError):
                node, seconds = decode(self._ray.get(record))
                _say(self._pace.took(node, seconds))


def recorded_answer(packed: bytes) -> tuple[bytes, bytes]:
    """Make a packed call in the process of a worker; returns the node with the seconds that it took, and the answer."""
    import ray

    begin = time.monotonic()
    answer = answer_call(packed, secrets=False)
    context = ray.get_runtime_context()
    return encode((node_title(ray.util.get_node_ip_address(), context.get_node_id()), time.monotonic() - begin)), answer


def node_title(address: str, node_id: str) -> str:
    """Name of a node in messages: its address, and the beginning of the id that Ray shows.

    >>> node_title("10.0.0.2", "8f3c21d09a")
    '10.0.0.2 8f3c21d0'
    """
    return f"{address} {node_id[:8]}"


def _place_of(ray: Any, reference: Any) -> tuple[str, float] | None:
    """Node of a call that is under way, and the seconds since it began; None where the dashboard does not say."""
    from ray.util.state import get_task

    try:
        # Of this cluster: Ray would not know whom to ask where several run on a machine.
        head = ray.get_runtime_context().gcs_address
        task = get_task(reference.task_id().hex(), address=head, timeout=int(_LOOK_SECONDS))
    except Exception as error:  # noqa: BLE001 - whatever keeps the dashboard from answering, the call goes on
        logger.debug("the dashboard does not say where a call is: %s", error)
        return None
    # One element for each attempt where there were several.
    task = task[-1] if isinstance(task, list) else task
    if task is None or task.state != "RUNNING" or not task.node_id or not task.start_time_ms:
        return None
    address = next((node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == task.node_id), "")
    return node_title(address, task.node_id), max(0.0, time.time() - task.start_time_ms / 1000)


def _say(message: str | None) -> None:
    if message is not None:
        logger.warning("%s; results do not depend on it, but they are waited for", message)
