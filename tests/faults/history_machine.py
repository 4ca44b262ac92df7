"""Histories drawn by hypothesis: a state machine whose rules are the steps of ``histories``; failed ones are shrunk."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from modyn_dagster.keys import key_of
from tests.faults.histories import Disturbance, History
from tests.faults.random_histories import random_fault
from tests.projects.tiny import ROWS

#: The faults of the random histories, with every choice made by hypothesis.
FAULTS: Final = st.randoms(use_true_random=False).map(random_fault)
_STARTS: Final = st.lists(st.builds(Disturbance, st.lists(FAULTS, min_size=1, max_size=3), st.booleans()), max_size=2)
_SAMPLES: Final = st.lists(st.tuples(st.integers(0, 99), st.integers(0, ROWS - 1)), min_size=1, max_size=4)


class HistoryMachine(RuleBasedStateMachine):
    """Steps in any order, each disturbed up to twice; the invariants are checked by the history after every start.

    Args:
        begun: opens a history without data, and closes it.
    """

    def __init__(self, begun: Callable[[], AbstractContextManager[History]]) -> None:
        super().__init__()
        self._opened = ExitStack()
        self.history = self._opened.enter_context(begun())
        self._is_sound = True

    def teardown(self) -> None:
        """Compare with the twin what no step has failed before, and close the history."""
        with self._opened:
            if self._is_sound and self.history.days:
                self.history.replay([])
                self.history.compare()

    @contextmanager
    def _step(self) -> Iterator[History]:
        self._is_sound = False
        yield self.history
        self._is_sound = True

    @initialize(starts=_STARTS)
    def begin(self, starts: list[Disturbance]) -> None:
        with self._step() as history:
            history.ingest(starts)

    @precondition(lambda self: self.history.days < 9)
    @rule(starts=_STARTS)
    def ingest(self, starts: list[Disturbance]) -> None:
        with self._step() as history:
            history.ingest(starts)

    @rule(starts=_STARTS)
    def replay(self, starts: list[Disturbance]) -> None:
        with self._step() as history:
            history.replay(starts)

    @rule(starts=_STARTS)
    def live(self, starts: list[Disturbance]) -> None:
        with self._step() as history:
            history.live(starts)

    @rule(samples=_SAMPLES, starts=_STARTS)
    def delete(self, samples: list[tuple[int, int]], starts: list[Disturbance]) -> None:
        with self._step() as history:
            history.delete([key_of(day % history.days, row) for day, row in samples], starts)

    @precondition(lambda self: len(self.history.replaced) < self.history.days)
    @rule(number=st.integers(0, 99), starts=_STARTS)
    def replace(self, number: int, starts: list[Disturbance]) -> None:
        with self._step() as history:
            days = [day for day in range(history.days) if day not in history.replaced]
            history.replace(days[number % len(days)], starts)

    @rule(starts=_STARTS)
    def retain(self, starts: list[Disturbance]) -> None:
        with self._step() as history:
            history.retain(starts)

    @rule(starts=_STARTS)
    def remove(self, starts: list[Disturbance]) -> None:
        with self._step() as history:
            history.remove(starts)

    @rule(seed=st.integers(0, 99), starts=_STARTS)
    def save_and_delete(self, seed: int, starts: list[Disturbance]) -> None:
        with self._step() as history:
            history.save_and_delete(seed, starts)
