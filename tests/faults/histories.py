"""Random histories: steps of an installation's life, disturbed by several faults at a time, beside the same steps undisturbed.

Everything is drawn from one seed, which the story of a history begins with.
"""

import random
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from modyn_dagster.keys import key_of
from tests.faults.facts import differences
from tests.faults.installation import Installation
from tests.faults.plan import CHANGES, Fault
from tests.projects.tiny import ROWS, amount, timed

#: Pipelines of a history. Faults may end many attempts, and how many is no part of what is compared.
REPLAYED: Final = amount("by_amount", every=60, max_attempts=99, retention={"training_sets": 2, "predictions": 1})
LIVE: Final = timed("by_time", every="1d", max_attempts=99)
#: Calls on files of a step are between a few dozen and some hundred; most faults strike, some come too late.
_MOST_CALLS: Final = 80
_ERRORS: Final = ("EIO", "ENOSPC", "EROFS", "EMFILE")
_DAYS: Final = 86_400
#: Ends of a disturbed step: done, an error in words, killed by the fault. Anything else, such as a hang, is a finding.
_EXPECTED: Final = (0, 1, -signal.SIGKILL)


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
class History:
    """One history: an installation that suffers, and its twin that does not."""

    seed: int
    suffering: Installation
    undisturbed: Installation
    days: int = 0
    replaced: set[int] = field(default_factory=set)
    tally: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)  # noqa: S311 - a seed to be printed, no secret
        self.suffering.log.append(f"seed {self.seed}")
        self.suffering.keep_shadow()
        self._import()

    def live_through(self, n_steps: int) -> None:
        """Take so many steps, then compare with the twin."""
        steps: Sequence[Callable[[], None]] = (
            self._import,
            self._replay,
            self._replay,
            self._live,
            self._live,
            self._delete,
            self._replace,
            self._retain,
            self._remove,
            self._save_and_delete,
        )
        for _ in range(n_steps):
            self._rng.choice(steps)()
        self._replay()
        for installation in (self.suffering, self.undisturbed):
            installation.must("retain")
        self.suffering.check_settled()
        differing = differences(self.suffering.facts(), self.undisturbed.facts())
        assert not differing, "\n".join([self.suffering.story, *differing])

    def _import(self) -> None:
        for installation in (self.suffering, self.undisturbed):
            installation.deliver(self.days)
        self.days += 1
        self._both("ingest")

    def _replay(self) -> None:
        self._both("replay", "by_amount")

    def _live(self) -> None:
        self._both("live", "by_time")

    def _delete(self) -> None:
        keys = [key_of(self._rng.randrange(self.days), self._rng.randrange(ROWS)) for _ in range(4)]
        self._both("delete", keys)

    def _replace(self) -> None:
        day = self._rng.randrange(self.days)
        if day in self.replaced:
            return
        self.replaced.add(day)
        for installation in (self.suffering, self.undisturbed):
            installation.deliver(day, shift=0.25)
        self._both("replace", f"day_{day:02d}")

    def _retain(self) -> None:
        self._both("retain")

    def _remove(self) -> None:
        self._both("remove", "by_amount")

    def _save_and_delete(self) -> None:
        self._both("save_and_delete", self._rng.randrange(100))

    def _both(self, task: str, *arguments: Any) -> None:
        """A step: a few disturbed starts, each of which leaves the invariants intact, and one that has to succeed."""
        for _ in range(self._rng.choice((0, 1, 1, 2))):
            self._disturb(task, *arguments)
        pipelines = [argument for argument in arguments if argument in ("by_amount", "by_time")]
        for pipeline in pipelines:
            self.suffering.must("resume", pipeline)
        self.suffering.must(task, *arguments)
        self.undisturbed.must(task, *arguments)

    def _disturb(self, task: str, *arguments: Any) -> None:
        faults = [random_fault(self._rng) for _ in range(self._rng.choice((1, 2, 3)))]
        ending = self.suffering.run(task, *arguments, faults=faults)
        self.tally[{0: "done", 1: "failed", -signal.SIGKILL: "killed"}.get(ending.exit_code, "ended otherwise")] += 1
        self.tally["calls struck"] += ending.n_hits
        story = f"{self.suffering.story}\n{ending.traceback}"
        assert ending.exit_code in _EXPECTED, story
        assert ending.is_clear, story
        if self._rng.random() < 0.2:
            self.tally["power cuts"] += 1
            self.suffering.cut_power()
        self.suffering.check()
