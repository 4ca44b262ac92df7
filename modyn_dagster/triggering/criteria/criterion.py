"""Base of decision criteria: a verdict on each score, from the recent ones where a criterion remembers them."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.triggering.policy import State


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on a score.

    Attributes:
        fire: the score fires.
        reason: for people, for example ``mmd 0.081 >= 0.05``.
        score: the score; None where it is undefined.
        threshold: the number that the score was compared with; None while there is none.
    """

    fire: bool
    reason: str
    score: float | None = None
    threshold: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        return {"fire": self.fire, "reason": self.reason, "score": self.score, "threshold": self.threshold}


class Criterion(ABC):
    """Rule that judges one score after another; its state is JSON."""

    def judge(self, name: str, score: float | None) -> Verdict:
        """Judge the next score, called ``name`` in the reason.

        An undefined score (None, NaN or infinite: too few samples, one class only) never fires and is not remembered.
        """
        if score is None or not isfinite(score):
            return Verdict(False, f"{name} is undefined here")
        verdict = self.judge_defined(name, float(score))
        if not isinstance(verdict, Verdict):
            raise TypeError(f"{type(self).__name__}.judge_defined must return a Verdict, not {type(verdict).__name__}")
        return verdict

    @abstractmethod
    def judge_defined(self, name: str, score: float) -> Verdict:
        """Judge a finite score."""

    def state_dict(self) -> State:
        """State that later scores are judged by, as JSON values; empty unless the criterion remembers scores."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - most criteria remember nothing
        """Restore the state of ``state_dict``; an empty state is a fresh start."""


def compared(name: str, score: float, sign: str, threshold: float) -> str:
    """A comparison for people, with as many digits as it takes to tell the two numbers apart.

    >>> compared("mmd", 0.0812345, ">=", 0.05)
    'mmd 0.08123 >= 0.05'
    """
    value, limit = f"{score:.4g}", f"{threshold:.4g}"
    if value == limit and score != threshold:
        value, limit = repr(score), repr(threshold)
    return f"{name} {value} {sign} {limit}"


class RecentScores(deque[float]):
    """The last ``maxlen`` scores, oldest first."""

    def state_dict(self) -> State:
        """The scores, oldest first."""
        return {"scores": list(self)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the scores."""
        self.clear()
        self.extend(map(float, state.get("scores", ())))


class WindowCriterion(Criterion):
    """Judges a score by the ``window`` scores before it, and remembers it afterwards, whether or not it fires.

    With fewer scores before it there is no threshold and a score never fires.

    Args:
        window: number of scores.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self._scores = RecentScores(maxlen=window)

    def judge_defined(self, name: str, score: float) -> Verdict:
        """Judge a score by those before it, then remember it."""
        if len(self._scores) < self.window:
            reason = f"{name} {score:.4g}: {len(self._scores)} of {self.window} scores so far"
            verdict = Verdict(False, reason, score)
        else:
            verdict = self.judge_by(np.array(self._scores), name, score)
        self._scores.append(score)
        return verdict

    @abstractmethod
    def judge_by(self, earlier: npt.NDArray[np.float64], name: str, score: float) -> Verdict:
        """Judge a score by the ``float64[window]`` before it, oldest first."""

    def state_dict(self) -> State:
        """Remembered scores, oldest first."""
        return self._scores.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the remembered scores."""
        self._scores.load_state_dict(state)
