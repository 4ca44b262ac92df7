"""A pool without processes: calls are made by the caller, as far ahead as a pool of processes would make them."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from modyn_dagster.distributed.messages import answer_call, pack_call, unpack_answer
from modyn_dagster.distributed.protocols import Resources
from modyn_dagster.settings import Settings


@dataclass
class InlinePool:
    """Makes calls in this process.

    Attributes:
        workers: calls that others would make at a time; so many results are made ahead of the caller.
        before: called with each item before its call, for tests that disturb it.
        after: makes another result, or an error, of a result.
        made: names of the functions that were called.
        settings: of the items.
    """

    workers: int = 2
    before: Callable[[Any], object] = lambda _: None
    after: Callable[[Any], Any] = lambda made: made
    made: list[str] = field(default_factory=list)
    settings: set[Settings] = field(default_factory=set)

    def map(self, function: Callable[[Any], Any], items: Iterable[Any], resources: Resources = Resources()) -> Iterator[Any]:  # noqa: B008
        assert resources.gpus == 0
        waiting: deque[Any] = deque()
        for item in items:
            waiting.append(self.after(self._call(function, item)))
            if len(waiting) > self.workers:
                yield self._result(waiting.popleft())
        while waiting:
            yield self._result(waiting.popleft())

    def _call(self, function: Callable[[Any], Any], item: Any) -> Any:
        self.made.append(function.__name__)
        self.settings.add(item.settings)
        self.before(item)
        try:
            return unpack_answer(answer_call(pack_call(function, item)))
        except Exception as error:  # noqa: BLE001 - raised where the result is asked for
            return error

    def _result(self, result: Any) -> Any:
        if isinstance(result, Exception):
            raise result
        return result
