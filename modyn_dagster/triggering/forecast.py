"""What a training will cost, in seconds."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from modyn_dagster.spec.trigger import SecondsModel
from modyn_dagster.triggering.policy import State
from modyn_dagster.triggering.ridge import ridge


class TrainingSeconds:
    """Seconds of a training by its number of samples: ridge regression on the last trainings, or a model that was given.

    With a model given, measured seconds play no part, so that a replay decides what production did.

    Args:
        model: ``fixed + per_sample * n``; None to learn from trainings.
        history: how many of the last trainings are learnt from.
    """

    def __init__(self, model: SecondsModel | None = None, history: int = 1000) -> None:
        self.model = model
        self._history: deque[tuple[int, float]] = deque(maxlen=history)

    def __repr__(self) -> str:
        return f"TrainingSeconds({self.model!r}, history={self._history.maxlen})"

    def add(self, n_samples: int, seconds: float) -> None:
        """A training of so many samples took so long."""
        if self.model is None:
            self._history.append((n_samples, seconds))

    def actual(self, n_samples: int, seconds: float) -> float:
        """What a training cost that took ``seconds``: these, or what the model says."""
        return seconds if self.model is None else self._by_model(self.model, n_samples)

    def expected(self, n_samples: int) -> float | None:
        """What a training of so many samples will cost, never below 0; None as long as there was none to learn from."""
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
        """Take up the trainings learnt from."""
        self._history.clear()
        self._history.extend((int(n), float(seconds)) for n, seconds in state.get("history", ()))

    @staticmethod
    def _by_model(model: SecondsModel, n_samples: int) -> float:
        return model.fixed + model.per_sample * n_samples
