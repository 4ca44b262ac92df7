"""Histories with faults, kills, power cuts and restarts end as the same histories without."""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conftest import RunningServer
from tests.faults.audited import AuditedTasks
from tests.faults.histories import LIVE, REPLAYED, History
from tests.faults.history_machine import HistoryMachine
from tests.faults.installation import Tasks, installed
from tests.faults.random_histories import RandomHistory
from tests.faults.worker import Worker

pytestmark = pytest.mark.process
#: Seeds of the soak part; MODYN_TESTS_SEEDS=FIRST-LAST takes others.
SEEDS: Final = os.environ.get("MODYN_TESTS_SEEDS", "0-14")
#: Seeds of hypothesis: each costs as much as some of the others.
MACHINE_SEEDS: Final = os.environ.get("MODYN_TESTS_SEEDS", "0-1")
#: Seconds that a task without a process waits for an error that passes.
_SHORT_WAIT: Final = 0.05


def seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


@contextmanager
def begun(server: RunningServer, tasks: Tasks, folder: Path, **options: float) -> Iterator[History]:
    """A history without data, and its twin."""
    pipelines = [REPLAYED, LIVE]
    with (
        installed(server, tasks, folder / "suffering", pipelines, **options) as suffering,
        installed(server, tasks, folder / "undisturbed", pipelines, **options) as undisturbed,
    ):
        yield History(suffering, undisturbed)


@pytest.fixture
def random_history(postgres_server: RunningServer, worker: Worker, tmp_path: Path, seed: int) -> Iterator[RandomHistory]:
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails, also where nothing was drawn yet
    with begun(postgres_server, worker, tmp_path) as history:
        yield RandomHistory(seed, history)
        print(f"seed {seed}: {dict(history.tally)}")  # noqa: T201


@pytest.mark.soak("faults")
@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_long_disturbed_histories_end_as_if_undisturbed(random_history: RandomHistory) -> None:
    random_history.live_through(8)


@dataclass
class Drawn:
    """Histories that hypothesis draws from a seed; a failed one is shrunk, and shown with the seed.

    Attributes:
        cuts_power: let the power be cut, which the library of faults alone can simulate.
        struck: calls that faults have struck in all of them.
    """

    server: RunningServer
    tasks: Tasks
    folder: Path
    cuts_power: bool = False
    struck: int = 0

    def live_through(self, number: int, examples: int, steps: int, **options: float) -> None:
        """Draw so many histories from a seed, each of so many steps."""
        print(f"hypothesis seed {number}")  # noqa: T201 - shown when the test fails
        folders = itertools.count()

        @contextmanager
        def opened() -> Iterator[History]:
            with begun(self.server, self.tasks, self.folder / str(next(folders)), **options) as history:
                if self.cuts_power:
                    history.suffering.keep_shadow()
                yield history
                self.struck += history.tally["calls struck"]

        class Machine(HistoryMachine):
            def __init__(self) -> None:
                super().__init__(opened)

        bounded = settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
        )
        run_state_machine_as_test(seed(number)(Machine), settings=bounded)


def test_histories_of_hypothesis_without_processes_end_as_if_undisturbed(postgres_server: RunningServer, tmp_path: Path) -> None:
    drawn = Drawn(postgres_server, AuditedTasks(), tmp_path)
    drawn.live_through(2, examples=3, steps=2, max_wait=_SHORT_WAIT)
    assert drawn.struck > 0, "a history without a fault shows nothing"


@pytest.mark.soak("faults")
@pytest.mark.parametrize("number", seeds(MACHINE_SEEDS))
def test_long_histories_of_hypothesis_end_as_if_undisturbed(
    postgres_server: RunningServer, worker: Worker, tmp_path: Path, number: int
) -> None:
    Drawn(postgres_server, worker, tmp_path, cuts_power=True).live_through(number, examples=3, steps=6)
