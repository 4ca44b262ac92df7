"""The score to expect at the next point, from those since the last trigger."""

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from modyn_dagster.spec.evaluation import MetricName
from modyn_dagster.spec.trigger import Forecast
from modyn_dagster.triggering.policy import State
from modyn_dagster.triggering.ridge import next_by_ridge

#: What a forecast of a metric stays within.
_BOUNDS: Final[Mapping[MetricName, tuple[float, float]]] = {
    "accuracy": (0.0, 1.0),
    "roc_auc": (0.0, 1.0),
    "f1": (0.0, 1.0),
    "log_loss": (0.0, np.inf),
    "mae": (0.0, np.inf),
    "mse": (0.0, np.inf),
    "r2": (-np.inf, 1.0),
}


class ScoreForecast:
    """Forecast by ridge regression on 0, 1, 2, … or by the mean, over the last ``window`` scores of the newest model.

    A trigger begins anew: how an older model fared says little about the next score of this one. One score is its own
    forecast.
    """

    def __init__(self, spec: Forecast, metric: MetricName) -> None:
        self.spec = spec
        self._bounds = _BOUNDS[metric]
        self._scores: deque[float] = deque(maxlen=spec.window)

    def __repr__(self) -> str:
        return f"ScoreForecast({self.spec.method!r}, window={self.spec.window})"

    def after(self, score: float) -> float:
        """Remember a score and say which one to expect next."""
        self._scores.append(score)
        if self.spec.method == "rolling_mean":
            return float(np.mean(self._scores))
        return min(max(next_by_ridge(self._scores), self._bounds[0]), self._bounds[1])

    def reset(self) -> None:
        """Begin again: a trigger was made."""
        self._scores.clear()

    def state_dict(self) -> State:
        """The remembered scores, oldest first."""
        return {"scores": list(self._scores)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the remembered scores."""
        self._scores.clear()
        self._scores.extend(map(float, state.get("scores", ())))
