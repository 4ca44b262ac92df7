"""Budget wrapper: caps on triggers, samples and training seconds in a sliding window of sample time."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from modyn_dagster.spec.base import seconds_of
from modyn_dagster.triggering.policies.forecasts import TrainingSeconds
from modyn_dagster.triggering.policies.training_windows import TrainingWindows
from modyn_dagster.triggering.policy import ModelTrained, State, TriggeringPolicy
from modyn_dagster.triggering.stream.loaded_batch import SECOND
from modyn_dagster.triggering.stream.training_stream import Stream
from modyn_dagster.triggering.wrappers.budget_ledger import BudgetLedger
from modyn_dagster.triggering.wrappers.wrapper import Refusal, Wrapper


@dataclass(frozen=True, slots=True)
class Caps:
    """Caps of a window; None for no cap. At least one is given."""

    triggers: int | None = None
    samples: int | None = None
    seconds: float | None = None


class BudgetPolicy(Wrapper):
    """Keeps another policy within its caps in every window of sample time of length ``per``.

    A trigger at running time T is made if it and the triggers later than T - ``per`` stay within every cap. Its samples are
    unknown before the selection; the selection's window bounds them. Its seconds are those of the cost model, or of the
    forecast for that many samples, and 0 before the first training. Once its model is committed the actual numbers replace both
    (with a cost model, the model's seconds for the actual samples, so that a replay decides as production did). A failed
    training keeps its expected numbers. Manual triggers count too. The rule is a sliding-window rate limit.

    Args:
        policy: the policy inside.
        per: length of the window, a duration.
        caps: of triggers, samples and training seconds.
        seconds: forecast of the seconds of a training.
        windows: of the pipeline's selection.

    >>> from modyn_dagster.triggering import build_policy, simulate
    >>> trigger = {"kind": "budget", "policy": {"kind": "amount", "every": 2}, "per": "10s", "triggers": 2}
    >>> [decision.index for decision in simulate(build_policy(trigger), range(20)) if decision.fire]
    [1, 3, 11, 13]
    """

    def __init__(
        self, policy: TriggeringPolicy, per: str, caps: Caps, seconds: TrainingSeconds, windows: TrainingWindows
    ) -> None:
        super().__init__(policy)
        self.per = per
        self.caps = caps
        self.spending = BudgetLedger(seconds_of(per) * SECOND, windows, seconds)

    def __repr__(self) -> str:
        return f"BudgetPolicy({self.policy!r}, per={self.per!r}, {self.caps!r})"

    @property
    def depends_on_models(self) -> bool:
        """As the policy inside; always with a cap of samples or seconds, which count what trainings took."""
        counts_trainings = self.caps.samples is not None or self.caps.seconds is not None
        return counts_trainings or super().depends_on_models

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        """Next point of the policy inside."""
        self.spending.settle(stream)
        return super().next_point(cursor, stream)

    def refusal(self, key: int, stream: Stream) -> Refusal | None:
        """Refusal that names the first cap the trigger would exceed."""
        self.spending.settle(stream)
        for cap, used, upcoming, most in self._bill(key, stream):
            if used + upcoming > most:
                return self._refused(cap, used, upcoming, most)
        return None

    def triggered(self, key: int) -> None:
        """Enter the trigger in the ledger."""
        self.spending.triggered(key)
        super().triggered(key)

    def model_trained(self, trained: ModelTrained) -> None:
        """Replace the expected numbers by the actual ones."""
        self.spending.trained(trained)
        super().model_trained(trained)

    def own_state(self) -> State:
        """State of the ledger."""
        return {"spending": self.spending.state_dict()}

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Restore the ledger."""
        self.spending.load_state_dict(state.get("spending", {}))

    def _bill(self, key: int, stream: Stream) -> Iterator[tuple[str, float, float, float]]:
        """Name, amount used, amount of the next trigger, and cap, for every cap."""
        recent = self.spending.recent(key, stream)
        upcoming = self.spending.upcoming(key, stream)
        if self.caps.triggers is not None:
            yield "triggers", len(recent), 1, self.caps.triggers
        if self.caps.samples is not None:
            yield "samples", sum(entry.samples or 0 for entry in recent), upcoming.samples or 0, self.caps.samples
        if self.caps.seconds is not None:
            used = math.fsum(entry.seconds or 0.0 for entry in recent)
            yield "seconds", used, upcoming.seconds or 0.0, self.caps.seconds

    def _refused(self, cap: str, used: float, upcoming: float, most: float) -> Refusal:
        why = f"{used:g} of {most:g} {cap} used in the last {self.per}, a trigger now needs up to {upcoming:g}"
        if upcoming > most:
            why += "; it alone exceeds the cap, so set selection.limit or raise the cap"
        return Refusal("budget", why, {"cap": cap, "used": used, "next": upcoming, "most": most, "per": self.per})
