"""Pool whose workers are processes of a Ray cluster."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from modyn_dagster.distributed.children import thread_settings
from modyn_dagster.distributed.messages import pack_call
from modyn_dagster.distributed.on_ray.cluster import ONE_CORE, connect, options_of, require_room
from modyn_dagster.distributed.on_ray.watch import SentCall, Watch, recorded_answer
from modyn_dagster.distributed.protocols import Resources

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Calls that wait on the cluster, per worker: enough for none to be idle between two of them.
_AHEAD: Final = 2


class RayPool:
    """Calls as tasks of a cluster, spread over its nodes; the call of a node that dies is made again on another one.

    Attributes:
        address: ``host:port`` of the head, or ``auto``.
        retries: how often a call is made again whose worker died.
        patience: seconds to wait for a first free place.
        slow_seconds: shortest call that the log calls slow, if it takes more than three times as long as those of other nodes.
    """

    def __init__(self, address: str = "auto", retries: int = 2, patience: float = 600.0, slow_seconds: float = 10.0) -> None:
        self.address, self.retries, self.patience, self.slow_seconds = address, retries, patience, slow_seconds

    @property
    def workers(self) -> int:
        """Cores of the cluster, but at least one."""
        return max(1, int(connect(self.address).cluster_resources().get("CPU", 0)))

    def map(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        resources: Resources = ONE_CORE,
    ) -> Iterator[Result]:
        """Call a function with each item, on any node; results come in the order of the items.

        Calls are sent as results are taken, at most two per worker in advance. Calls that were sent are cancelled if nobody asks
        for the rest, and when one fails. A node whose calls take much longer than those of the others is named in the log.

        Raises:
            NoRoom: no node is large enough, or all stay busy.
            WorkerLost: workers died over the same item again and again.
        """
        ray, work = connect(self.address), f"{function.__module__}.{function.__name__}"
        require_room(ray, work, resources, self.patience)
        # Only a lost worker is tried anew: an error of the function is an answer, and would come again.
        options = {"num_returns": 2, "max_retries": self.retries, "scheduling_strategy": "SPREAD", **options_of(resources)}
        options["runtime_env"] = {"env_vars": thread_settings(resources.cpus)}
        task = ray.remote(recorded_answer).options(name=work, **options)
        ahead = max(1, _AHEAD * self.workers // resources.cpus)
        sent: deque[SentCall] = deque()
        watch = Watch(ray, work, self.slow_seconds)
        try:
            for item in items:
                sent.append(SentCall(*task.remote(pack_call(function, item, secrets=False))))
                if len(sent) >= ahead:
                    yield watch.result(sent.popleft(), sent)
            while sent:
                yield watch.result(sent.popleft(), sent)
        finally:
            for call in sent:
                ray.cancel(call.answer, force=True)
