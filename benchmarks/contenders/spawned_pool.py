"""Pool of the standard library: processes of this machine, arguments and results pickled through pipes."""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Final, Self

from modyn_dagster.distributed.protocols import Item, Resources, Result

_ONE_CORE: Final = Resources()


class SpawnedPool:
    """A ``Pool`` over new interpreters, which end with the block."""

    def __init__(self, processes: int) -> None:
        self._executor = ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))
        self._processes = processes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown()

    @property
    def workers(self) -> int:
        return self._processes

    def map(
        self, function: Callable[[Item], Result], items: Iterable[Item], resources: Resources = _ONE_CORE
    ) -> Iterator[Result]:
        return self._executor.map(function, items)
