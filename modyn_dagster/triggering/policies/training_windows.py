"""What the newest model was trained on, and what the next one would be."""

from collections.abc import Mapping, Sequence
from typing import Any

from modyn_dagster.keys import ORIGIN, KeyRange
from modyn_dagster.spec.selection import LastTriggers, Reach
from modyn_dagster.triggering.policy import State
from modyn_dagster.triggering.stream.training_stream import Stream


class TrainingWindows:
    """Windows of the pipeline's selection, from the keys of the triggers whose training succeeded.

    Args:
        window: of the selection; ``run`` is everything since the run began.
        limit: training sets never hold more samples.
    """

    def __init__(self, window: Reach = "since_last_trigger", limit: int | None = None) -> None:
        self.window = window
        self.limit = limit
        self._back = window.last_triggers if isinstance(window, LastTriggers) else 1
        self._trained: list[int] = []

    def trained(self, key: int) -> None:
        """The model of a trigger is there."""
        self._trained = [*self._trained, key][-self._back - 1 :]

    def newest(self, stream: Stream) -> KeyRange | None:
        """What the newest model was selected from; None where there is none."""
        return self._window(self._trained[:-1], self._trained[-1], stream) if self._trained else None

    def upcoming_samples(self, until: int, stream: Stream) -> int:
        """How many samples a training set of now would hold, but for deleted ones."""
        window = self._window(self._trained, until, stream)
        n = stream.total(until) if self.window == "all" else stream.count(window.after, until)
        return n if self.limit is None else min(n, self.limit)

    def state_dict(self) -> State:
        """Keys of the last trained triggers."""
        return {"trained": self._trained}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up these keys."""
        self._trained = [int(key) for key in state.get("trained", ())]

    def _window(self, before: Sequence[int], until: int, stream: Stream) -> KeyRange:
        if self.window == "all":
            return KeyRange(ORIGIN, until)
        if self.window == "run":
            return KeyRange(stream.origin, until)
        return KeyRange(before[-self._back] if len(before) >= self._back else stream.origin, until)
