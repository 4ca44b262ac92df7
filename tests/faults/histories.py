"""Histories: steps of an installation's life, disturbed by several faults at a time, beside the same steps undisturbed.

Steps and disturbances are drawn elsewhere: by ``random_histories`` from a seed, by ``history_machine`` with hypothesis.
"""

import signal
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.faults.facts import differences
from tests.faults.installation import Installation
from tests.faults.plan import Fault
from tests.projects.tiny import amount, timed

#: Pipelines of a history. Faults may end many attempts, and how many is no part of what is compared.
REPLAYED: Final = amount("by_amount", every=60, max_attempts=99, retention={"training_sets": 2, "predictions": 1})
LIVE: Final = timed("by_time", every="1d", max_attempts=99)
#: Ends of a disturbed step: done, an error in words, killed by the fault. Anything else, such as a hang, is a finding.
_EXPECTED: Final = (0, 1, -signal.SIGKILL)


@dataclass(frozen=True)
class Disturbance:
    """A start of a step that suffers faults, and after which the power may be cut, where the installation keeps a shadow."""

    faults: Sequence[Fault]
    cuts_power: bool = False


@dataclass
class History:
    """One history: an installation that suffers, and its twin that does not.

    Attributes:
        days: delivered so far; the first is delivered and ingested by ``begin``.
        replaced: days whose file was corrected, once at most.
        tally: of what happened.
    """

    suffering: Installation
    undisturbed: Installation
    days: int = 0
    replaced: set[int] = field(default_factory=set)
    tally: Counter[str] = field(default_factory=Counter)

    def ingest(self, disturbances: Iterable[Disturbance]) -> None:
        """Deliver the next day, and import it."""
        for installation in (self.suffering, self.undisturbed):
            installation.deliver(self.days)
        self.days += 1
        self._step(disturbances, "ingest")

    def replay(self, disturbances: Iterable[Disturbance]) -> None:
        """Replay everything; what has no run yet begins one."""
        self._step(disturbances, "replay", "by_amount")

    def live(self, disturbances: Iterable[Disturbance]) -> None:
        """Let production take up what there is."""
        self._step(disturbances, "live", "by_time")

    def delete(self, keys: Sequence[int], disturbances: Iterable[Disturbance]) -> None:
        """Delete samples, and purge every other one."""
        self._step(disturbances, "delete", keys)

    def replace(self, day: int, disturbances: Iterable[Disturbance]) -> None:
        """Replace a day by its corrected file, unless it was."""
        if day in self.replaced:
            return
        self.replaced.add(day)
        for installation in (self.suffering, self.undisturbed):
            installation.deliver(day, shift=0.25)
        self._step(disturbances, "replace", f"day_{day:02d}")

    def retain(self, disturbances: Iterable[Disturbance]) -> None:
        """Apply retention."""
        self._step(disturbances, "retain")

    def remove(self, disturbances: Iterable[Disturbance]) -> None:
        """Remove the replayed pipeline."""
        self._step(disturbances, "remove", "by_amount")

    def save_and_delete(self, seed: int, disturbances: Iterable[Disturbance]) -> None:
        """Store two models, and delete the one that the other is based on."""
        self._step(disturbances, "save_and_delete", seed)

    def compare(self) -> None:
        """Assert that nothing is left over, and that both installations ended alike."""
        for installation in (self.suffering, self.undisturbed):
            installation.must("retain")
        self.suffering.check_settled()
        differing = differences(self.suffering.facts(), self.undisturbed.facts())
        assert not differing, "\n".join([self.suffering.story, *differing])

    def _step(self, disturbances: Iterable[Disturbance], task: str, *arguments: Any) -> None:
        """Take a step: a few disturbed starts, each of which leaves the invariants intact, and one that has to succeed."""
        for disturbance in disturbances:
            self._disturb(disturbance, task, *arguments)
        pipelines = [argument for argument in arguments if argument in ("by_amount", "by_time")]
        for pipeline in pipelines:
            self.suffering.must("resume", pipeline)
        self.suffering.must(task, *arguments)
        self.undisturbed.must(task, *arguments)

    def _disturb(self, disturbance: Disturbance, task: str, *arguments: Any) -> None:
        ending = self.suffering.run(task, *arguments, faults=disturbance.faults)
        self.tally[{0: "done", 1: "failed", -signal.SIGKILL: "killed"}.get(ending.exit_code, "ended otherwise")] += 1
        self.tally["calls struck"] += ending.n_hits
        story = f"{self.suffering.story}\n{ending.traceback}"
        assert ending.exit_code in _EXPECTED, story
        assert ending.is_clear, story
        if disturbance.cuts_power and self.suffering.keeps_shadow:
            self.tally["power cuts"] += 1
            self.suffering.cut_power()
        self.suffering.check()
