"""Cost policy: fire when the regret of waiting has reached the price of a training."""

from collections.abc import Mapping
from typing import Any

from modyn_dagster.triggering.criteria import compared
from modyn_dagster.triggering.measurement import Measured, Need
from modyn_dagster.triggering.policies.batched import BatchedPolicy, DecisionPoint, Warmup
from modyn_dagster.triggering.policies.forecasts import TrainingSeconds
from modyn_dagster.triggering.policies.regret import Regret
from modyn_dagster.triggering.policies.training_windows import TrainingWindows
from modyn_dagster.triggering.policy import Decision, ModelTrained, State


class CostPolicy(BatchedPolicy):
    """Fires when regret reaches ``regret_per_training_second`` times the expected seconds of a training.

    Regret is in the unit of its signal, sample-seconds or misclassifications, and is 0 after each trigger. The expected training
    is one on the samples that the selection's window holds at the point. Source: the cost triggers of Modyn (SIGMOD 2025);
    costs of staleness and retraining are weighed by Mahadevan & Mathioudakis (Cost-Effective Retraining, arXiv 2310.04216).

    Args:
        every: number of samples between two points.
        regret: cost of not training, added up since the last trigger.
        regret_per_training_second: regret that a second of training is worth.
        seconds: forecast of the seconds of a training.
        windows: of the pipeline's selection; size of the expected training.
        warmup: decides at the first points.

    >>> from modyn_dagster.triggering import build_policy, simulate
    >>> trigger = {"kind": "cost", "every": 2, "signal": "latency", "regret_per_training_second": 4}
    >>> policy = build_policy(trigger | {"seconds": {"fixed": 3}})
    >>> [(decision.index, decision.score) for decision in simulate(policy, range(9)) if decision.fire]
    [(1, None), (7, 15.0)]
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

    def need(self, point: DecisionPoint) -> Need | None:
        """Need of the regret."""
        return self.regret.need(point, self.windows)

    def judge(self, point: DecisionPoint, measured: Measured | None) -> Decision:
        """Compare regret with the price of a training."""
        regret = self.regret.at(point, measured)
        n_samples = self.windows.upcoming_samples(point.key, point.stream)
        expected = self.seconds.expected(n_samples)
        details = {"unit": self.regret.unit, "n_samples": n_samples, "training_seconds": expected}
        if regret is None:
            return Decision(False, point.key, "regret cannot be told: the accuracy is undefined here", details=details)
        if expected is None:
            return Decision(False, point.key, "no training to forecast seconds from", regret, None, details)
        threshold = self.regret_per_training_second * expected
        fire = regret >= threshold
        price = f"{self.regret_per_training_second:g} per second of training, {expected:.4g} s for {n_samples} samples"
        reason = f"{compared('regret', regret, '>=' if fire else '<', threshold)} {self.regret.unit} ({price})"
        return Decision(fire, point.key, reason, regret, threshold, details)

    def triggered(self, key: int) -> None:
        """Reset the regret."""
        super().triggered(key)
        self.regret.reset(key)

    def model_trained(self, trained: ModelTrained) -> None:
        """Learn the seconds of one more training."""
        super().model_trained(trained)
        self.windows.trained(trained.key)
        self.seconds.add(trained.n_samples, trained.seconds)

    def own_state(self) -> State:
        """Regret, trainings of the forecast, and keys of trained triggers."""
        return {
            "regret": self.regret.state_dict(),
            "seconds": self.seconds.state_dict(),
            "windows": self.windows.state_dict(),
        }

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Restore all three."""
        self.regret.load_state_dict(state.get("regret", {}))
        self.seconds.load_state_dict(state.get("seconds", {}))
        self.windows.load_state_dict(state.get("windows", {}))
