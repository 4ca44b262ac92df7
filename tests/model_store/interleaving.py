"""Every relevant order in which processes can access the files of one store.

Each process is a thread that pauses before every access to a file of models or reservations. Of orders that differ only in
independent steps one is run (sleep sets: P. Godefroid, Partial-Order Methods for the Verification of Concurrent Systems,
Springer 1996).
"""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from fsspec.implementations.memory import MemoryFileSystem

from modyn_dagster.model_store import ModelStore


@dataclass(frozen=True)
class Step:
    """Access to a file, or to all below a folder, that an actor is about to make."""

    what: str
    path: str

    @property
    def writes(self) -> bool:
        return self.what in ("put", "remove")

    def touches(self, other: "Step") -> bool:
        """True if it makes a difference which comes first."""
        if not (self.writes or other.writes):
            return False
        return any(
            a.path == b.path or (a.what == "list" and b.path.startswith(a.path)) for a, b in ((self, other), (other, self))
        )


class Killed(BaseException):
    """Whoever is killed does nothing any more."""


class Actor:
    """One process: how it uses a store, up to before the write after ``fatal`` others."""

    def __init__(self, url: str, use: Callable[..., object], given: Sequence[Any], fatal: int | None = None) -> None:
        self.n_writes = 0
        self.error: BaseException | None = None
        self._left, self._dead = fatal, False
        self._said: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        self._go: queue.SimpleQueue[None] = queue.SimpleQueue()
        store, files = ModelStore(url, threads=1), Files()
        folder: Any = store.repository.folder
        folder.filesystem, folder.is_atomic, files.actor = files, True, self
        self._thread = threading.Thread(target=self._run, args=(partial(use, store, *given),), daemon=True)
        self._thread.start()
        #: None at the end.
        self.next: Step | None = self._said.get()

    def before(self, step: Step) -> None:
        """Called by its files."""
        self._dead |= step.writes and self.n_writes == self._left
        if not self._dead:
            self._said.put(step)
            self._go.get()
        if self._dead:
            raise Killed
        self.n_writes += step.writes

    def go_on(self) -> None:
        """Take one step."""
        self._go.put(None)
        self.next = self._said.get()
        if self.next is None:
            self._thread.join()

    def end(self) -> None:
        """Take no more."""
        if self.next is not None:
            self._dead = True
            self.go_on()

    def _run(self, use: Callable[[], object]) -> None:
        try:
            use()
        except (Exception, Killed) as error:  # noqa: BLE001 - for the test to see
            self.error = error
        self._said.put(None)


class Files(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Shows objects when all of them was put, as S3 does; documents and hints are put aside: nobody needs them."""

    cachable = False
    actor: Actor | None = None
    _busy = False

    def _step(self, what: str, path: str, do: Callable[[], Any]) -> Any:
        if self._busy or self.actor is None or "/documents" in path or "/tensors" in path:
            return do()
        self.actor.before(Step(what, path.strip("/")))
        self._busy = True
        try:
            return do()
        finally:
            self._busy = False

    def put_file(self, lpath: str, rpath: str, **kwargs: Any) -> None:
        content = Path(lpath).read_bytes()
        self._step("put", rpath, lambda: self.pipe_file(rpath, content))

    def rm_file(self, path: str) -> None:
        self._step("remove", path, lambda: super(Files, self).rm_file(path))

    def info(self, path: str, **kwargs: Any) -> Any:
        return self._step("read", path, lambda: super(Files, self).info(path, **kwargs))

    def cat_file(self, path: str, *args: Any, **kwargs: Any) -> Any:
        return self._step("read", path, lambda: super(Files, self).cat_file(path, *args, **kwargs))

    def find(self, path: str, *args: Any, **kwargs: Any) -> Any:
        return self._step("list", path, lambda: super(Files, self).find(path, *args, **kwargs))


def orders(start: Callable[[], list[Actor]], rng: np.random.Generator, some: int = 0) -> Iterator[list[Actor]]:
    """Runs all orders, each from a new start, and gives the actors at the end of each; or ``some`` of them, any."""
    todo: list[tuple[list[int], frozenset[int]]] = [([], frozenset())]
    n_run = 0
    while todo and not (some and n_run == some):
        chosen, asleep = todo.pop(int(rng.integers(len(todo))) if some else -1)
        actors = start()
        for place, who in enumerate(chosen):
            if place == len(chosen) - 1:
                asleep = _still_asleep(actors, asleep, who)
            actors[who].go_on()
        while awake := [n for n, actor in enumerate(actors) if actor.next is not None and n not in asleep]:
            who, *others = awake
            passed = asleep | {who}
            for other in others:
                todo.append(([*chosen, other], passed))
                passed |= {other}
            asleep = _still_asleep(actors, asleep, who)
            chosen = [*chosen, who]
            actors[who].go_on()
        if all(actor.next is None for actor in actors):
            n_run += 1
            yield actors
        for actor in actors:
            actor.end()


def _still_asleep(actors: list[Actor], asleep: frozenset[int], who: int) -> frozenset[int]:
    step = actors[who].next
    steps = {n: actors[n].next for n in asleep}
    return frozenset(n for n, other in steps.items() if step is not None and other is not None and not step.touches(other))
