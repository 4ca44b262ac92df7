"""Pool of processes of this machine."""

import os
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Self, TypeVar, cast

from modyn_dagster.distributed.children import Child, await_output, end_all, ending_of, start_child, thread_settings
from modyn_dagster.distributed.messages import pack_call, receive, send, unpack_answer
from modyn_dagster.distributed.protocols import Resources
from modyn_dagster.errors import ConfigError, WorkerLost

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Calls begun or waiting, for each worker: one more than are made at a time, so that a busy caller keeps no worker waiting.
_AHEAD: Final = 2


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that waits for a worker; ``work`` names it in errors."""

    request: bytes
    work: str
    cpus: int
    future: "Future[Any]"


class ProcessPool:
    """Workers in processes of their own, a call each at a time; thread-safe.

    They are new interpreters, started when there is work for them and kept for more. They end with the pool, and with this
    process, however it ends. When one dies over an item, another makes the call once more.

    Args:
        processes: calls that run at the same time, at least 1.
    """

    def __init__(self, processes: int) -> None:
        if processes < 1:
            raise ConfigError("pool", "processes", processes, "must be at least 1")
        self._workers = processes
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._started: list[Child] = []
        self._lock = threading.Lock()
        self._end = weakref.finalize(self, end_all, self._started, os.getpid())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def workers(self) -> int:
        """Calls that run at the same time."""
        return self._workers

    def map(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        resources: Resources = Resources(),  # noqa: B008 - frozen
    ) -> Iterator[Result]:
        """Call a function of a module with each item; results come in the order of the items, as they are asked for.

        Items are taken by the caller's thread, two for each worker ahead. An error is raised in place of its item's result, and
        ends the iterator; calls not begun by then, or when the caller stops, are never made. ``resources.cpus`` is the number
        of threads of torch and OpenMP.

        Raises:
            ConfigError: the function belongs to no module, an item cannot be sent, or GPUs or memory are asked for.
            WorkerLost: two workers died over the same item.
        """
        if resources.gpus:
            raise ConfigError("pool", "gpus", resources.gpus, "must be 0: processes of this machine are dealt no GPUs")
        return self._results(function, items, resources.without_memory("pool of processes").cpus)

    def close(self) -> None:
        """End the workers at once, in the middle of a call too."""
        self._end()
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            thread.join()
        while not self._calls.empty():
            call = self._calls.get()
            if call is not None:
                call.future.cancel()

    def _results(self, function: Callable[[Item], Result], items: Iterable[Item], cpus: int) -> Iterator[Result]:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(self._submit(function, item, cpus))
                if len(waiting) == _AHEAD * self._workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def _submit(self, function: Callable[[Item], Result], item: Item, cpus: int) -> "Future[Result]":
        if not self._end.alive:
            raise ConfigError("pool", "map", str(item), "must not be called after the pool is closed")
        future: Future[Result] = Future()
        self._calls.put(_Call(pack_call(function, item), str(item), cpus, future))
        with self._lock:
            if len(self._threads) < self._workers:
                self._threads.append(threading.Thread(target=self._work, name="pool", daemon=True))
                self._threads[-1].start()
        return future

    def _work(self) -> None:
        """Make calls with one worker after the other."""
        worker: _Worker | None = None
        while (call := self._calls.get()) is not None:
            if not call.future.set_running_or_notify_cancel():
                continue
            try:
                worker = self._call(worker, call)
            except BaseException as error:  # noqa: BLE001 - raised where the result is waited for
                call.future.set_exception(error)
                worker = None

    def _call(self, worker: "_Worker | None", call: _Call) -> "_Worker":
        for is_last in (False, True):
            if worker is not None and worker.cpus != call.cpus:
                self._drop(worker)
                worker = None
            worker = worker or self._start(call.cpus)
            try:
                answer = worker.ask(call.request)
            except (EOFError, OSError, ValueError) as error:  # a closed pipe is a ValueError
                ending = ending_of(worker.process)
                self._drop(worker)
                worker = None
                if is_last or not self._end.alive:
                    raise WorkerLost(call.work, ending) from error
            else:
                _settle(call.future, answer)
                return worker
        raise AssertionError("the second try returns or raises")

    def _start(self, cpus: int) -> "_Worker":
        process = start_child(["modyn_dagster.distributed.processes.worker"], thread_settings(cpus))
        self._started.append(process)
        if not self._end.alive:
            # The pool was closed meanwhile.
            end_all(self._started, os.getpid())
        return _Worker(process, cpus)

    def _drop(self, worker: "_Worker") -> None:
        end_all([worker.process], os.getpid())
        self._started.remove(worker.process)


class _Worker:
    """A process and the number of its threads."""

    def __init__(self, process: Child, cpus: int) -> None:
        self.process, self.cpus = process, cpus
        self._is_ready = False

    def ask(self, request: bytes) -> bytes:
        """Send a call and wait for its answer; ``EOFError`` or ``OSError`` when the process is gone."""
        if not self._is_ready:
            self._receive()
            self._is_ready = True
        send(cast(BinaryIO, self.process.stdin), request)
        return self._receive()

    def _receive(self) -> bytes:
        await_output(self.process)
        return receive(cast(BinaryIO, self.process.stdout))


def _settle(future: "Future[Any]", answer: bytes) -> None:
    try:
        result = unpack_answer(answer)
    except BaseException as error:  # noqa: BLE001 - the error of the item
        future.set_exception(error)
    else:
        future.set_result(result)
