"""Setting of the model store's benchmark: networks, flows, folders, and clocks."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import torch

from benchmarks.measure import ROUNDS, Machine, Rounds, Run, Spread, interleave
from benchmarks.model_flows import Recipe, SmallNet, State, resnet18, resnet152
from modyn_dagster.model_store import Delta, ModelStore

#: What a flow is stored with: differences of depth 1 behind one snapshot.
DELTA: Final = Delta(full_model_interval=None)

NETWORK: Final = Recipe(resnet18)
LARGE: Final = Recipe(resnet152, batch=8, pretraining=6, steps=4)
SMALL: Final = Recipe(SmallNet)

#: Does one repetition; what it returns tidies up, outside of the clock.
Work = Callable[[], Callable[[], object]]


@dataclass
class Setting:
    """How much is measured.

    Attributes:
        network: what most flows train.
        large: the largest one, trained for less long.
        small: what a fleet trains.
        iterations: of U3-1, and again of U3-2, in the standard flow; 4 make one of 10 models.
        chain: models in the chain of G6.
        beside: models in a chain kept by MMlib and by us.
        nodes: of the fleet, and how many iterations each has.
        saves: of the trace, from the first.
        smaller: what the trace's models are divided by.
        is_quick: what takes long and changes little is left out.
        mmlib: a checkout of MMlib, None without.
    """

    network: Recipe = NETWORK
    large: Recipe = LARGE
    small: Recipe = SMALL
    iterations: int = 4
    chain: int = 20
    beside: int = 5
    nodes: tuple[int, int] = (20, 10)
    saves: int = 40
    smaller: int = 1
    is_quick: bool = False
    mmlib: Path | None = None
    machine: Machine = field(default_factory=Machine)

    @classmethod
    def quick(cls) -> "Setting":
        """Everything within a minute: other networks, so other figures."""
        return cls(
            network=SMALL,
            large=Recipe(resnet18, batch=8, pretraining=4, steps=2),
            iterations=2,
            chain=4,
            beside=2,
            nodes=(2, 3),
            saves=5,
            smaller=8,
            is_quick=True,
        )


@contextmanager
def folder() -> Iterator[ModelStore]:
    """A store in a folder that goes away, with as many threads as torch has now."""
    path = Path(tempfile.mkdtemp(prefix="models-"))
    try:
        yield ModelStore(path / "store", threads=torch.get_num_threads())
    finally:
        shutil.rmtree(path)


def saved(store: ModelStore, states: Iterable[tuple[int | None, State]]) -> Iterator[tuple[str, State]]:
    """Each state with its id, a delta to the one whose place comes with it, or a compressed snapshot."""
    models: list[str] = []
    for parent, state in states:
        base = None if parent is None else models[parent]
        models.append(store.save(state, base=base, strategy=DELTA))
        yield models[-1], state


def in_line(states: Iterable[State]) -> Iterator[tuple[int | None, State]]:
    """Each derives from the one before."""
    return ((n - 1 if n else None, state) for n, state in enumerate(states))


def by_both_clocks(contenders: Mapping[str, Work], machine: Machine) -> tuple[Rounds, Rounds]:
    """Seconds, and seconds of the processor in all threads: waiting for a disk or for other people's work left out."""
    processor: dict[str, list[Run]] = {name: [] for name in contenders}

    def clocked(name: str, work: Work) -> Callable[[], Run]:
        def run() -> Run:
            wall, used = time.perf_counter(), time.process_time()
            tidy = work()
            found = Run(1, time.perf_counter() - wall)
            processor[name].append(Run(1, time.process_time() - used))
            tidy()
            return found

        return run

    wall = interleave({name: clocked(name, work) for name, work in contenders.items()}, machine)
    return wall, Rounds({name: runs[-ROUNDS:] for name, runs in processor.items()})


def loading(store: ModelStore, model: str, *, verify: bool = True) -> Work:
    """Recovers a model, files in the page cache."""

    def work() -> Callable[[], object]:
        store.load(model, verify=verify)
        return nothing

    return work


def nothing() -> None:
    """There is nothing to tidy up."""


def one(value: float) -> Spread:
    """A figure that needs no rounds."""
    return Spread(value, value, value)
