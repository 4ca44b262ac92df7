"""Fire when waiting has cost what a training costs."""

from collections.abc import Mapping
from typing import Any

from modyn_dagster.triggering.criteria import compared
from modyn_dagster.triggering.measurement import Measured, Need
from modyn_dagster.triggering.policies.batched import BatchedPolicy, Place, Warmup
from modyn_dagster.triggering.policies.forecasts import TrainingSeconds
from modyn_dagster.triggering.policies.regret import Regret
from modyn_dagster.triggering.policies.training_windows import TrainingWindows
from modyn_dagster.triggering.policy import Decision, ModelTrained, State


class CostPolicy(BatchedPolicy):
    """Fires when regret reaches ``regret_per_training_second`` times the seconds that a training is expected to take.

    Regret has the unit of its signal, sample-seconds or misclassifications, and is 0 after each trigger; so the factor says
    how much of that a second of training may save. The training expected is one of the samples that the selection's window
    holds at the point.
    """

    def __init__(
        self,
        every: int,
        regret: Regret,
        regret_per_training_second: float,
        seconds: TrainingSeconds,
        windows: TrainingWindows,
        warmup: Warmup | None = None,
    ) -> None:
        super().__init__(every, warmup)
        self.regret = regret
        self.regret_per_training_second = regret_per_training_second
        self.seconds = seconds
        self.windows = windows

    def __repr__(self) -> str:
        return f"CostPolicy(every={self.every}, {self.regret!r}, {self.regret_per_training_second}, {self.seconds!r})"

    def need(self, place: Place) -> Need | None:
        """The regret's."""
        return self.regret.need(place, self.windows)

    def judge(self, place: Place, measured: Measured | None) -> Decision:
        """Compare regret with the price of a training."""
        regret = self.regret.at(place, measured)
        n_samples = self.windows.upcoming_samples(place.point, place.stream)
        expected = self.seconds.expected(n_samples)
        details = {"unit": self.regret.unit, "n_samples": n_samples, "training_seconds": expected}
        if regret is None:
            return Decision(False, place.point, "regret cannot be told: the accuracy is undefined here", details=details)
        if expected is None:
            return Decision(False, place.point, "no training to forecast seconds from", regret, None, details)
        threshold = self.regret_per_training_second * expected
        fire = regret >= threshold
        price = f"{self.regret_per_training_second:g} per second of training, {expected:.4g} s for {n_samples} samples"
        reason = f"{compared('regret', regret, '>=' if fire else '<', threshold)} {self.regret.unit} ({price})"
        return Decision(fire, place.point, reason, regret, threshold, details)

    def triggered(self, key: int) -> None:
        """Regret is 0 again."""
        super().triggered(key)
        self.regret.reset(key)

    def model_trained(self, trained: ModelTrained) -> None:
        """One more training to learn from."""
        super().model_trained(trained)
        self.windows.trained(trained.key)
        self.seconds.add(trained.n_samples, trained.seconds)

    def own_state(self) -> State:
        """Regret, trainings learnt from, and keys of trained triggers."""
        return {
            "regret": self.regret.state_dict(),
            "seconds": self.seconds.state_dict(),
            "windows": self.windows.state_dict(),
        }

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Take up all three."""
        self.regret.load_state_dict(state.get("regret", {}))
        self.seconds.load_state_dict(state.get("seconds", {}))
        self.windows.load_state_dict(state.get("windows", {}))
