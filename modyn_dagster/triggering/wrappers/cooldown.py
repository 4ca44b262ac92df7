"""Cooldown wrapper: no trigger for a while after each trigger."""

from modyn_dagster.keys import ORIGIN
from modyn_dagster.spec.base import seconds_of
from modyn_dagster.triggering.policy import State, TriggeringPolicy
from modyn_dagster.triggering.stream.loaded_batch import SECOND
from modyn_dagster.triggering.stream.training_stream import Stream
from modyn_dagster.triggering.wrappers.wrapper import Refusal, SpacingWrapper


class CooldownPolicy(SpacingWrapper):
    """Refuses triggers that lie too few samples, or too little sample time, after the last one.

    The distance is between the keys of two triggers, manual ones included. The first trigger is never refused. The policy inside
    goes on measuring meanwhile. A refractory period of this kind is usual in alerting and autoscaling.

    Args:
        policy: the policy inside.
        samples: least number of samples between two triggers.
        duration: least sample time between two triggers.

    >>> from modyn_dagster.triggering import build_policy, simulate
    >>> policy = CooldownPolicy(build_policy({"kind": "amount", "every": 2}), samples=3)
    >>> [decision.index for decision in simulate(policy, range(10)) if decision.fire]
    [1, 5, 9]
    """

    def __init__(self, policy: TriggeringPolicy, *, samples: int | None = None, duration: str | None = None) -> None:
        super().__init__(policy)
        self.samples = samples
        self.duration = duration

    def __repr__(self) -> str:
        return f"CooldownPolicy({self.policy!r}, samples={self.samples}, duration={self.duration!r})"

    def refusal(self, key: int, stream: Stream) -> Refusal | None:
        """Refusal while the distance to the last trigger is too short."""
        if self.last_trigger == ORIGIN:
            return None
        if self.samples is not None:
            return _refused_below(stream.count(self.last_trigger, key), self.samples, "samples")
        last, now = stream.moment(self.last_trigger), stream.moment(key)
        if self.duration is None or last is None or now is None:
            return None
        return _refused_below((now - last) / SECOND, seconds_of(self.duration), "seconds")

    def own_state(self) -> State:
        """Key of the last trigger; None before the first one."""
        return {"last": None if self.last_trigger == ORIGIN else self.last_trigger}


def _refused_below(passed: float, least: int, unit: str) -> Refusal | None:
    if passed >= least:
        return None
    return Refusal("cooldown", f"{passed:g} of {least} {unit} since the last trigger", {unit: passed, "quiet": least})
