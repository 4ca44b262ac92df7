"""Ledger of the triggers in a sliding window of sample time, and their cost."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from modyn_dagster.triggering.policies.forecasts import TrainingSeconds
from modyn_dagster.triggering.policies.training_windows import TrainingWindows
from modyn_dagster.triggering.policy import ModelTrained, State
from modyn_dagster.triggering.stream.training_stream import Stream


@dataclass(slots=True)
class LedgerEntry:
    """One trigger.

    Attributes:
        key: of the trigger.
        moment: running time there, microseconds since 1970; None until a stream is at hand.
        samples: of its training set: the most it can hold, then how many it held; None until a stream is at hand.
        seconds: of its training: expected, then actual; None while nothing is known.
    """

    key: int
    moment: int | None = None
    samples: int | None = None
    seconds: float | None = None


class BudgetLedger:
    """The triggers that still count, and what the next one will cost.

    Args:
        per: length of the sliding window in microseconds; a trigger counts while its time is later than now - per.
        windows: of the pipeline's selection; bounds samples.
        seconds: what a training costs.
    """

    def __init__(self, per: int, windows: TrainingWindows, seconds: TrainingSeconds) -> None:
        self._per = per
        self._windows = windows
        self._seconds = seconds
        self._spent: list[LedgerEntry] = []

    def recent(self, key: int, stream: Stream) -> list[LedgerEntry]:
        """The triggers that count for one at ``key``."""
        moment = stream.moment(key)
        # A trigger made by hand before the first sample has no time: it counts as long as it is remembered.
        return [spent for spent in self._spent if spent.moment is None or moment is None or spent.moment > moment - self._per]

    def upcoming(self, key: int, stream: Stream) -> LedgerEntry:
        """The most a trigger at ``key`` can cost, as far as it is known."""
        samples = self._windows.upcoming_samples(key, stream)
        return LedgerEntry(key, stream.moment(key), samples, self._seconds.expected(samples))

    def settle(self, stream: Stream) -> None:
        """Look up what could not be known without a stream; forget what can never count again."""
        for spent in self._spent:
            if spent.moment is None or spent.samples is None:
                expected = self.upcoming(spent.key, stream)
                spent.moment = expected.moment
                if spent.samples is None:
                    spent.samples, spent.seconds = expected.samples, expected.seconds
        if self._spent and (newest := self._spent[-1].moment) is not None:
            # Later triggers have later keys, so none of them reaches back further than the newest one does.
            self._spent = [spent for spent in self._spent if spent.moment is None or spent.moment > newest - self._per]

    def triggered(self, key: int) -> None:
        """One more trigger."""
        self._spent.append(LedgerEntry(key))

    def trained(self, trained: ModelTrained) -> None:
        """What a trigger cost replaces what was expected of it."""
        self._windows.trained(trained.key)
        self._seconds.add(trained.n_samples, trained.seconds)
        for spent in self._spent:
            if spent.key == trained.key:
                spent.samples = trained.n_samples
                spent.seconds = self._seconds.actual(trained.n_samples, trained.seconds)

    def state_dict(self) -> State:
        """Triggers that count, keys of the last trained ones, and what the forecast has learnt."""
        spent = [list(astuple(spent)) for spent in self._spent]
        return {"spent": spent, "windows": self._windows.state_dict(), "seconds": self._seconds.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up all three."""
        rows: Sequence[Sequence[Any]] = state.get("spent", ())
        self._spent = [LedgerEntry(*row) for row in rows]
        self._windows.load_state_dict(state.get("windows", {}))
        self._seconds.load_state_dict(state.get("seconds", {}))
