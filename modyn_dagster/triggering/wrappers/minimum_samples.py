"""Quiet until enough samples have arrived."""

from collections.abc import Mapping
from typing import Any

from modyn_dagster.keys import ORIGIN
from modyn_dagster.triggering.policy import State, TriggeringPolicy
from modyn_dagster.triggering.stream.training_stream import Stream
from modyn_dagster.triggering.wrappers.wrapper import Refusal, Wrapper


class MinimumSamplesPolicy(Wrapper):
    """Another policy whose triggers hold at least so many samples since the trigger before, the first one included.

    Samples are counted up to the key that would be trained on, so no window since the last trigger is ever smaller.
    """

    def __init__(self, policy: TriggeringPolicy, samples: int) -> None:
        super().__init__(policy)
        self.samples = samples
        self._last = ORIGIN

    def __repr__(self) -> str:
        return f"MinimumSamplesPolicy({self.policy!r}, samples={self.samples})"

    def refusal(self, key: int, stream: Stream) -> Refusal | None:
        """Refused while there are too few."""
        since = stream.count(self._last, key)
        if since >= self.samples:
            return None
        why = f"{since} of {self.samples} samples since the last trigger"
        return Refusal("minimum_samples", why, {"samples": since, "minimum": self.samples})

    def triggered(self, key: int) -> None:
        """The count begins again."""
        self._last = key
        super().triggered(key)

    def own_state(self) -> State:
        """Key of the last trigger."""
        return {"last": self._last}

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Take up the key of the last trigger."""
        self._last = int(state.get("last", ORIGIN))
