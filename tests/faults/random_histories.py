"""Histories that are drawn from one seed, which their story begins with; the same seed draws the same history."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from modyn_dagster.keys import key_of
from tests.faults.histories import Disturbance, History
from tests.faults.plan import CHANGES, Fault
from tests.projects.tiny import ROWS

#: Calls on files of a step are between a few dozen and some hundred; most faults strike, some come too late.
_MOST_CALLS: Final = 80
_ERRORS: Final = ("EIO", "ENOSPC", "EROFS", "EMFILE")
_DAYS: Final = 86_400
_POWER_CUTS: Final = 0.2


def random_fault(rng: random.Random) -> Fault:
    """A fault of files, of the catalog's connections, or of the clock."""
    after, times = rng.randrange(_MOST_CALLS), rng.choice((0, 1, 1, 3))
    match rng.randrange(8):
        case 0 | 1:
            return Fault(CHANGES, "kill", after)
        case 2:
            return Fault(["write", "fsync", "rename", "mkdir", "open"], "fail", after, times, rng.choice(_ERRORS))
        case 3:
            return Fault(
                [rng.choice(("write", "fsync", "rename", "open", "read"))], "fail", after // 4, times, rng.choice(_ERRORS)
            )
        case 4:
            return Fault(["write", "read", "send", "recv"], "short", after, 20)
        case 5:
            return Fault([*CHANGES, "send"], "delay", after, 5, value=30_000)
        case 6:
            return Fault([rng.choice(("send", "recv", "connect"))], "fail", after, times, "ECONNRESET")
        case _:
            return Fault(["clock"], "jump", after, 1, value=rng.choice((-400, -1, 1, 400)) * _DAYS)


@dataclass
class RandomHistory:
    """A history and the generator that draws its steps."""

    seed: int
    history: History

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)  # noqa: S311 - a seed to be printed, no secret
        self.history.suffering.log.append(f"seed {self.seed}")
        self.history.suffering.keep_shadow()
        self.history.ingest(self._disturbances())

    def live_through(self, n_steps: int) -> None:
        """Take so many steps and replay once more, then compare with the twin."""
        history = self.history
        steps: Sequence[Callable[[], None]] = (
            lambda: history.ingest(self._disturbances()),
            lambda: history.replay(self._disturbances()),
            lambda: history.replay(self._disturbances()),
            lambda: history.live(self._disturbances()),
            lambda: history.live(self._disturbances()),
            lambda: history.delete(self._keys(), self._disturbances()),
            lambda: history.replace(self._rng.randrange(history.days), self._disturbances()),
            lambda: history.retain(self._disturbances()),
            lambda: history.remove(self._disturbances()),
            lambda: history.save_and_delete(self._rng.randrange(100), self._disturbances()),
        )
        for _ in range(n_steps):
            self._rng.choice(steps)()
        history.replay(self._disturbances())
        history.compare()

    def _keys(self) -> list[int]:
        return [key_of(self._rng.randrange(self.history.days), self._rng.randrange(ROWS)) for _ in range(4)]

    def _disturbances(self) -> Iterator[Disturbance]:
        """Drawn one by one as the history asks for them: a step that is left out draws none."""
        for _ in range(self._rng.choice((0, 1, 1, 2))):
            faults = [random_fault(self._rng) for _ in range(self._rng.choice((1, 2, 3)))]
            yield Disturbance(faults, self._rng.random() < _POWER_CUTS)
