"""Ledger of the triggers in a sliding window of sample time, with their costs."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from modyn_dagster.triggering.policies.forecasts import TrainingSeconds
from modyn_dagster.triggering.policies.training_windows import TrainingWindows
from modyn_dagster.triggering.policy import ModelTrained, State
from modyn_dagster.triggering.stream.training_stream import Stream


@dataclass(slots=True)
class LedgerEntry:
    """Trigger with its cost.

    Attributes:
        key: of the trigger.
        moment: running time at the key, microseconds since 1970; None until a stream is at hand.
        samples: size of the training set: largest possible one, then actual one; None until a stream is at hand.
        seconds: of the training: expected, then actual; None while unknown.
    """

    key: int
    moment: int | None = None
    samples: int | None = None
    seconds: float | None = None


class BudgetLedger:
    """Triggers that still count, and the expected cost of the next one.

    Args:
        per: length of the sliding window in microseconds; a trigger counts while its time is later than now - per.
        windows: of the pipeline's selection; bounds samples.
        seconds: forecast of the seconds of a training.
    """

    def __init__(self, per: int, windows: TrainingWindows, seconds: TrainingSeconds) -> None:
        self._per = per
        self._windows = windows
        self._seconds = seconds
        self._entries: list[LedgerEntry] = []

    def recent(self, key: int, stream: Stream) -> list[LedgerEntry]:
        """Triggers that count for one at ``key``."""
        moment = stream.moment(key)
        # A manual trigger before the first sample has no time: it counts as long as it is remembered.
        return [entry for entry in self._entries if entry.moment is None or moment is None or entry.moment > moment - self._per]

    def upcoming(self, key: int, stream: Stream) -> LedgerEntry:
        """Largest possible cost of a trigger at ``key``, as far as known."""
        samples = self._windows.upcoming_samples(key, stream)
        return LedgerEntry(key, stream.moment(key), samples, self._seconds.expected(samples))

    def settle(self, stream: Stream) -> None:
        """Complete entries that waited for a stream, and forget those that can never count again."""
        for entry in self._entries:
            if entry.moment is None or entry.samples is None:
                expected = self.upcoming(entry.key, stream)
                entry.moment = expected.moment
                if entry.samples is None:
                    entry.samples, entry.seconds = expected.samples, expected.seconds
        if self._entries and (newest := self._entries[-1].moment) is not None:
            # Later triggers have later keys, so that none of them reaches back further than the newest one.
            self._entries = [entry for entry in self._entries if entry.moment is None or entry.moment > newest - self._per]

    def triggered(self, key: int) -> None:
        """Enter a trigger."""
        self._entries.append(LedgerEntry(key))

    def trained(self, trained: ModelTrained) -> None:
        """Replace the expected cost of a trigger by the actual one."""
        self._windows.trained(trained.key)
        self._seconds.add(trained.n_samples, trained.seconds)
        for entry in self._entries:
            if entry.key == trained.key:
                entry.samples = trained.n_samples
                entry.seconds = self._seconds.actual(trained.n_samples, trained.seconds)

    def state_dict(self) -> State:
        """Triggers that count, keys of the last trained ones, and trainings of the forecast."""
        entries = [list(astuple(entry)) for entry in self._entries]
        return {"spent": entries, "windows": self._windows.state_dict(), "seconds": self._seconds.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore all three."""
        rows: Sequence[Sequence[Any]] = state.get("spent", ())
        self._entries = [LedgerEntry(*row) for row in rows]
        self._windows.load_state_dict(state.get("windows", {}))
        self._seconds.load_state_dict(state.get("seconds", {}))
