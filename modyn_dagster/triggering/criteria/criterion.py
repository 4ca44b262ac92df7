"""Decision criteria: verdict on one score after another, and the base of those that remember recent scores."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

State = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a score fires, and why.

    Attributes:
        fire: whether it does.
        reason: for people, for example ``mmd 0.081 >= 0.05``.
        score: what was judged; None where it was undefined.
        threshold: what it was compared with; None while there is none.
    """

    fire: bool
    reason: str
    score: float | None = None
    threshold: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {"fire": self.fire, "reason": self.reason, "score": self.score, "threshold": self.threshold}


class Criterion(ABC):
    """Judges one score after another. What it remembers goes out and comes in as JSON."""

    def judge(self, name: str, score: float | None) -> Verdict:
        """Judge the next score; ``name`` is what it is called in the reason.

        An undefined score (None, NaN or infinite: too few samples, one class only) never fires and is not remembered.
        """
        if score is None or not isfinite(score):
            return Verdict(False, f"{name} is undefined here")
        return self.judge_defined(name, float(score))

    @abstractmethod
    def judge_defined(self, name: str, score: float) -> Verdict:
        """Judge a finite score."""

    def state_dict(self) -> State:
        """What later scores are judged by, as JSON values; nothing unless a criterion remembers."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - most criteria remember nothing
        """Take up the state of ``state_dict``; an empty state is a fresh start."""


def compared(name: str, score: float, sign: str, threshold: float) -> str:
    """A comparison for people, with as many digits as it takes to tell the two numbers apart.

    >>> compared("mmd", 0.0812345, ">=", 0.05)
    'mmd 0.08123 >= 0.05'
    """
    shown, limit = f"{score:.4g}", f"{threshold:.4g}"
    if shown == limit and score != threshold:
        shown, limit = repr(score), repr(threshold)
    return f"{name} {shown} {sign} {limit}"


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
