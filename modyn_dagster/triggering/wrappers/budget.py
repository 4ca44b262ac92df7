"""Never more than a cap per stretch of sample time."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from modyn_dagster.spec.base import seconds_of
from modyn_dagster.triggering.policies.forecasts import TrainingSeconds
from modyn_dagster.triggering.policies.training_windows import TrainingWindows
from modyn_dagster.triggering.policy import ModelTrained, State, TriggeringPolicy
from modyn_dagster.triggering.stream.training_stream import Stream
from modyn_dagster.triggering.wrappers.budget_ledger import BudgetLedger
from modyn_dagster.triggering.wrappers.wrapper import Refusal, Wrapper


@dataclass(frozen=True, slots=True)
class Caps:
    """What may be spent per window; None: as much as you like. At least one is given."""

    triggers: int | None = None
    samples: int | None = None
    seconds: float | None = None


class BudgetPolicy(Wrapper):
    """Another policy that never spends more than its caps in any window of sample time of length ``per``.

    A trigger at running time T is made when it and the triggers later than T - ``per`` stay within every cap. Its samples
    are not known before they are selected, so they are bounded from the selection's window; its seconds come from the
    cost model or from the forecast for that many samples, and count as 0 as long as nothing was ever trained. When its
    model is there the actual numbers replace both (with a cost model: the model's seconds for the actual samples, so that
    a replay decides as production did). Failed trainings keep what was expected of them; triggers by hand count too.

    Args:
        policy: the one to keep within the caps.
        per: a duration.
        caps: of triggers, samples and training seconds.
        seconds: what a training costs.
        windows: of the pipeline's selection.
    """

    def __init__(
        self, policy: TriggeringPolicy, per: str, caps: Caps, seconds: TrainingSeconds, windows: TrainingWindows
    ) -> None:
        super().__init__(policy)
        self.per = per
        self.caps = caps
        self.spending = BudgetLedger(seconds_of(per) * 1_000_000, windows, seconds)

    def __repr__(self) -> str:
        return f"BudgetPolicy({self.policy!r}, per={self.per!r}, {self.caps!r})"

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        """The other policy's."""
        self.spending.settle(stream)
        return super().next_point(cursor, stream)

    def refusal(self, key: int, stream: Stream) -> Refusal | None:
        """Refused when a cap would be exceeded; the first such cap is named."""
        self.spending.settle(stream)
        for cap, used, wanted, most in self._bill(key, stream):
            if used + wanted > most:
                return self._refused(cap, used, wanted, most)
        return None

    def triggered(self, key: int) -> None:
        """The trigger counts from now on."""
        self.spending.triggered(key)
        super().triggered(key)

    def model_trained(self, trained: ModelTrained) -> None:
        """The actual numbers replace what was expected."""
        self.spending.trained(trained)
        super().model_trained(trained)

    def own_state(self) -> State:
        """What was spent."""
        return {"spending": self.spending.state_dict()}

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Take it up."""
        self.spending.load_state_dict(state.get("spending", {}))

    def _bill(self, key: int, stream: Stream) -> Iterator[tuple[str, float, float, float]]:
        """For every cap: its name, what is used, what the next trigger adds, and the cap."""
        recent = self.spending.recent(key, stream)
        now = self.spending.upcoming(key, stream)
        if self.caps.triggers is not None:
            yield "triggers", len(recent), 1, self.caps.triggers
        if self.caps.samples is not None:
            yield "samples", sum(spent.samples or 0 for spent in recent), now.samples or 0, self.caps.samples
        if self.caps.seconds is not None:
            used = math.fsum(spent.seconds or 0.0 for spent in recent)
            yield "seconds", used, now.seconds or 0.0, self.caps.seconds

    def _refused(self, cap: str, used: float, wanted: float, most: float) -> Refusal:
        why = f"{used:g} of {most:g} {cap} used in the last {self.per}, a trigger now needs up to {wanted:g}"
        if wanted > most:
            why += "; it alone exceeds the cap, so set selection.limit or raise the cap"
        return Refusal("budget", why, {"cap": cap, "used": used, "next": wanted, "most": most, "per": self.per})
