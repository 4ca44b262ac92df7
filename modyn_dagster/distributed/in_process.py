"""Pool without workers: every call is made by the process that asks."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from modyn_dagster.distributed.protocols import Item, Resources, Result

_ONE_CORE: Final = Resources()


class InProcessPool:
    """A ``Pool`` that calls in turn, in this process; arrays are handed over as they are.

    >>> list(InProcessPool().map(abs, [-2, 3]))
    [2, 3]
    """

    @property
    def workers(self) -> int:
        """Always 1: calls follow each other."""
        return 1

    def map(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        resources: Resources = _ONE_CORE,
    ) -> Iterator[Result]:
        """Call the function with each item as its result is asked for; see ``Pool``. Cores and GPUs are those of this process.

        Raises:
            ConfigError: a bound on memory is asked for.
        """
        resources.without_memory("pool of this process")
        return map(function, items)
