"""The scores a dynamic threshold is taken from."""

from abc import abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.triggering.criteria.verdict import Criterion, State, Verdict


class RecentScores(Criterion):
    """Judges a score by the ``window`` ones before it, and remembers it afterwards, whether or not it fired.

    With fewer scores than that there is no threshold and nothing fires: the first score never does.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self._scores: deque[float] = deque(maxlen=window)

    def judge_defined(self, name: str, score: float) -> Verdict:
        """Judge by the scores before this one; then it is one of them."""
        if len(self._scores) < self.window:
            reason = f"{name} {score:.4g}: {len(self._scores)} of {self.window} scores so far"
            verdict = Verdict(False, reason, score)
        else:
            verdict = self.judge_by(np.array(self._scores), name, score)
        self._scores.append(score)
        return verdict

    @abstractmethod
    def judge_by(self, before: npt.NDArray[np.float64], name: str, score: float) -> Verdict:
        """Judge a score by the ``float64[window]`` before it, oldest first."""

    def state_dict(self) -> State:
        """The remembered scores, oldest first."""
        return {"scores": list(self._scores)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the remembered scores."""
        self._scores = deque(map(float, state.get("scores", ())), maxlen=self.window)
