"""Forecasts: seconds of a training, and the score at the next point."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.spec.tasks.metrics import MetricName
from modyn_dagster.spec.triggers.base import SecondsModel
from modyn_dagster.spec.triggers.measured import Forecast
from modyn_dagster.triggering.criteria.criterion import RecentScores
from modyn_dagster.triggering.policy import State


def ridge(x: npt.ArrayLike, y: npt.ArrayLike, alpha: float = 1.0) -> tuple[float, float]:
    """Slope and intercept that minimise ``sum((y - slope * x - intercept) ** 2) + alpha * slope ** 2``.

    The intercept is free, as in scikit-learn's ``Ridge``, so that one point gives a constant (Hoerl & Kennard, Technometrics
    1970). ``x`` and ``y`` are ``[n]``, n >= 1.

    >>> ridge([0, 1], [1, 2], alpha=0.0)
    (1.0, 1.0)
    """
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    a_mean, b_mean = a.mean(), b.mean()
    from_mean = a - a_mean
    spread = float(from_mean @ from_mean) + alpha
    slope = float(from_mean @ (b - b_mean)) / spread if spread else 0.0
    return slope, float(b_mean - slope * a_mean)


def next_by_ridge(values: Sequence[float]) -> float:
    """Forecast of the value after those at 0, 1, 2, …; one value is its own forecast."""
    slope, intercept = ridge(np.arange(len(values)), values)
    return slope * len(values) + intercept


class TrainingSeconds:
    """Forecast of the seconds of a training from its number of samples.

    The forecast is a ridge regression on the last trainings, or a given model. With a model measured seconds play no part, so
    that a replay decides as production did.

    Args:
        model: ``fixed + per_sample * n``; None to learn from trainings.
        history: number of trainings that are learnt from.

    >>> forecast = TrainingSeconds()
    >>> forecast.add(100, 2.0)
    >>> forecast.add(200, 3.0)
    >>> round(forecast.expected(300), 2)
    4.0
    """

    def __init__(self, model: SecondsModel | None = None, history: int = 1000) -> None:
        self.model = model
        self._history: deque[tuple[int, float]] = deque(maxlen=history)

    def __repr__(self) -> str:
        return f"TrainingSeconds({self.model!r}, history={self._history.maxlen})"

    def add(self, n_samples: int, seconds: float) -> None:
        """Learn from a training."""
        if self.model is None:
            self._history.append((n_samples, seconds))

    def actual(self, n_samples: int, seconds: float) -> float:
        """Cost of a training that took ``seconds``: the seconds themselves, or those of the model."""
        return seconds if self.model is None else self._by_model(self.model, n_samples)

    def expected(self, n_samples: int) -> float | None:
        """Expected seconds of a training, never below 0; None without a training to learn from."""
        if self.model is not None:
            return self._by_model(self.model, n_samples)
        if not self._history:
            return None
        samples, seconds = zip(*self._history, strict=True)
        slope, intercept = ridge(samples, seconds)
        return max(0.0, slope * n_samples + intercept)

    def state_dict(self) -> State:
        """Samples and seconds of the trainings learnt from, oldest first."""
        return {"history": [list(training) for training in self._history]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the trainings learnt from."""
        self._history.clear()
        self._history.extend((int(n), float(seconds)) for n, seconds in state.get("history", ()))

    @staticmethod
    def _by_model(model: SecondsModel, n_samples: int) -> float:
        return model.fixed + model.per_sample * n_samples


#: Range of a metric, which its forecasts stay within.
_BOUNDS: Final[Mapping[MetricName, tuple[float, float]]] = {
    "accuracy": (0.0, 1.0),
    "roc_auc": (0.0, 1.0),
    "f1": (0.0, 1.0),
    "r2": (-np.inf, 1.0),
    "quadratic_kappa": (-1.0, 1.0),
    "ranked_probability": (0.0, 1.0),
    "coverage": (0.0, 1.0),
    "subset_accuracy": (0.0, 1.0),
    "hamming_loss": (0.0, 1.0),
    "label_f1_micro": (0.0, 1.0),
    "label_f1_macro": (0.0, 1.0),
    "ndcg": (0.0, 1.0),
    "reciprocal_rank": (0.0, 1.0),
    "average_precision": (0.0, 1.0),
    "token_accuracy": (0.0, 1.0),
    "span_f1": (0.0, 1.0),
    "span_precision": (0.0, 1.0),
    "span_recall": (0.0, 1.0),
    "alignment": (0.0, 4.0),
    "uniformity": (-8.0, 0.0),
}
#: Range of every other metric, which is a loss.
_LOSS: Final = (0.0, np.inf)


class ScoreForecast:
    """Forecast of the next score from the last scores of the newest model: ridge regression over 0, 1, 2, … or mean.

    Scores of older models are forgotten at a trigger. One score is its own forecast. Source: the forecasting performance triggers
    of Modyn (SIGMOD 2025).

    Args:
        spec: method and number of scores.
        metric: metric of the scores, whose range the forecast stays within.

    >>> forecast = ScoreForecast(Forecast(method="ridge", window=3), "accuracy")
    >>> [round(forecast.update(score), 2) for score in (0.9, 0.8, 0.7)]
    [0.9, 0.8, 0.67]
    """

    def __init__(self, spec: Forecast, metric: MetricName) -> None:
        self.spec = spec
        self._bounds = _BOUNDS.get("ndcg" if metric.startswith("ndcg_") else metric, _LOSS)
        self._scores = RecentScores(maxlen=spec.window)

    def __repr__(self) -> str:
        return f"ScoreForecast({self.spec.method!r}, window={self.spec.window})"

    def update(self, score: float) -> float:
        """Remember a score and forecast the next one."""
        self._scores.append(score)
        if self.spec.method == "rolling_mean":
            return float(np.mean(self._scores))
        return min(max(next_by_ridge(self._scores), self._bounds[0]), self._bounds[1])

    def reset(self) -> None:
        """Forget all scores, as at a trigger."""
        self._scores.clear()

    def state_dict(self) -> State:
        """Remembered scores, oldest first."""
        return self._scores.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the remembered scores."""
        self._scores.load_state_dict(state)
