"""Minimum-samples wrapper: no trigger until enough samples have arrived."""

from modyn_dagster.triggering.policy import TriggeringPolicy
from modyn_dagster.triggering.stream.training_stream import Stream
from modyn_dagster.triggering.wrappers.wrapper import Refusal, SpacingWrapper


class MinimumSamplesPolicy(SpacingWrapper):
    """Refuses triggers with too few samples since the trigger before, or since the origin for the first one.

    Samples count up to the last key that would be trained on, so that no window since the last trigger is smaller. The wrapper
    bounds the smallest training set of time and drift policies.

    Args:
        policy: the policy inside.
        samples: least number of samples of a trigger.

    >>> from modyn_dagster.triggering import build_policy, simulate
    >>> policy = MinimumSamplesPolicy(build_policy({"kind": "amount", "every": 2}), samples=3)
    >>> [decision.index for decision in simulate(policy, range(10)) if decision.fire]
    [3, 7]
    """

    def __init__(self, policy: TriggeringPolicy, samples: int) -> None:
        super().__init__(policy)
        self.samples = samples

    def __repr__(self) -> str:
        return f"MinimumSamplesPolicy({self.policy!r}, samples={self.samples})"

    def refusal(self, key: int, stream: Stream) -> Refusal | None:
        """Refusal while there are too few samples."""
        since = stream.count(self.last_trigger, key)
        if since >= self.samples:
            return None
        why = f"{since} of {self.samples} samples since the last trigger"
        return Refusal("minimum_samples", why, {"samples": since, "minimum": self.samples})
