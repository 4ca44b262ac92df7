"""Interleaved repetitions, their medians, paired ratios, and the load of the machine.

Contenders run in turn, round after round, so that a disturbance hits all of them; a ratio is taken inside each round and the
median of these is reported, never a ratio of two medians. A value is the median of at least five rounds, with the smallest
and the largest.
"""

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

#: Rounds of a figure; a median of fewer says little.
ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class Run:
    """One repetition: how many units (rows, images, keys, bytes) went through in how many seconds."""

    units: float
    seconds: float

    @property
    def rate(self) -> float:
        """Units per second."""
        return self.units / self.seconds


#: Does one repetition and says what it did; what it prepares outside of its own clock does not count.
Contender = Callable[[], Run]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, smallest and largest of several values of one kind."""

    value: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of at least one value."""
        return cls(statistics.median(values), min(values), max(values))


def timed(units: float, work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> Contender:
    """A contender whose whole call counts; with ``time.process_time`` in seconds of the processor, waiting left out."""

    def run() -> Run:
        start = clock()
        work()
        return Run(units, clock() - start)

    return run


@dataclass
class Machine:
    """How busy the machine was: load averages and foreign runnable processes, sampled around every round."""

    load: list[float] = field(default_factory=list)
    foreign: list[int] = field(default_factory=list)

    def sample(self) -> None:
        """Take one sample."""
        self.load.append(os.getloadavg()[0])
        self.foreign.append(foreign_runnable())


@dataclass(frozen=True)
class Rounds:
    """Repetitions by contender; the i-th ones ran side by side."""

    runs: Mapping[str, Sequence[Run]]

    def rate(self, name: str) -> Spread:
        """Units per second."""
        return Spread.of([run.rate for run in self.runs[name]])

    def seconds(self, name: str) -> Spread:
        """Seconds of one repetition."""
        return Spread.of([run.seconds for run in self.runs[name]])

    def ratio(self, name: str, base: str) -> Spread:
        """Rate of ``name`` over rate of ``base``, paired by round."""
        return Spread.of([a.rate / b.rate for a, b in zip(self.runs[name], self.runs[base], strict=True)])


def interleave(
    contenders: Mapping[str, Contender], machine: Machine, *, rounds: int = ROUNDS, warm_up: int = 1, least: int = ROUNDS
) -> Rounds:
    """Run the contenders in turn, ``warm_up`` rounds unmeasured, then ``rounds`` measured ones.

    Each round begins with another contender, so that none always follows the same one. ``least`` may be lowered where a round
    takes minutes; whoever does so says in the figure how many rounds it comes from.
    """
    if rounds < least:
        raise ValueError(f"a median needs at least {least} rounds, not {rounds}")
    runs: dict[str, list[Run]] = {name: [] for name in contenders}
    with _frozen():
        for number in range(-warm_up, rounds):
            machine.sample()
            for name in _rotated(list(contenders), number + warm_up):
                with _no_collection():
                    run = contenders[name]()
                if number >= 0:
                    runs[name].append(run)
        machine.sample()
    return Rounds(runs)


def foreign_runnable() -> int:
    """Processes that want a core now and are neither this one nor below it."""
    processes = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        # The command's name stands in parentheses and may hold anything.
        state, parent = text[text.rindex(")") + 2 :].split()[:2]
        processes[int(path.parent.name)] = (state, int(parent))
    return count_foreign(processes, os.getpid())


def count_foreign(processes: Mapping[int, tuple[str, int]], own: int) -> int:
    """Runnable ones of ``processes``, pid to (state, parent's pid), that do not descend from ``own``."""

    def ours(pid: int) -> bool:
        while pid != own and pid in processes:
            pid = processes[pid][1]
        return pid == own

    return sum(state == "R" and not ours(pid) for pid, (state, _) in processes.items())


def anonymous_bytes() -> int:
    """Resident memory of this process that no file backs: what it costs beside the page cache."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status does not name RssAnon: memory can be measured on Linux only")


def _rotated(names: list[str], by: int) -> list[str]:
    by %= max(1, len(names))
    return names[by:] + names[:by]


@contextmanager
def _frozen() -> Iterator[None]:
    """What is there now is not looked at in every collection: modules are many, and most repetitions are short beside them."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _no_collection() -> Iterator[None]:
    """The garbage collector runs before a repetition, never inside one."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
