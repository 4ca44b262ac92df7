"""Stream detectors named by import path in tests, and some that break the laws."""

import random
from collections.abc import Mapping
from typing import Any

from river.drift import PageHinkley


class Cusum:
    """Page's test, written anew: river's Page-Hinkley, upwards only, with JSON state."""

    def __init__(self, threshold: float = 20.0, delta: float = 0.005, min_instances: int = 30) -> None:
        self.threshold, self.delta, self.min_instances = threshold, delta, min_instances
        self._reset()

    def _reset(self) -> None:
        self.n, self.mean, self.up, self.least = 0, 0.0, 0.0, float("inf")

    def update(self, value: float) -> bool:
        self.n += 1
        self.mean += (value - self.mean) / self.n
        self.up += value - self.mean - self.delta
        self.least = min(self.least, self.up)
        sounds = self.n >= self.min_instances and self.up - self.least > self.threshold
        if sounds:
            self._reset()
        return sounds

    def state_dict(self) -> dict[str, Any]:
        return {"n": self.n, "mean": self.mean, "up": self.up, "least": self.least if self.n else None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.n, self.mean, self.up = state["n"], state["mean"], state["up"]
        self.least = float("inf") if state["least"] is None else state["least"]


def river_upwards(threshold: float = 20.0) -> PageHinkley:
    return PageHinkley(threshold=threshold, mode="up", alpha=1.0)


class Always(Cusum):
    """Answers of any kind, at every value."""

    def __init__(self, answer: Any = True) -> None:
        super().__init__()
        self.answer = answer

    def update(self, value: float) -> Any:
        return self.answer


class Failing(Cusum):
    def update(self, value: float) -> bool:
        raise KeyError("no such state")


class Forgetful(Cusum):
    """Forgets the mean in its state."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict({**state, "mean": 0.0})


class Hidden(Cusum):
    """Keeps a count out of its state, at which it sounds."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = 0

    def update(self, value: float) -> bool:
        self.hidden += 1
        return super().update(value) or self.hidden % 40 == 0


class Drawing(Cusum):
    def update(self, value: float) -> bool:
        return super().update(value + random.gauss(0.0, 1e-9))


class Sharing(Cusum):
    """One memory for all detectors of the class."""

    memory: list[float] = []

    def __init__(self) -> None:
        super().__init__()
        self.memory.clear()

    def update(self, value: float) -> bool:
        self.memory.append(value)
        return sum(self.memory[-20:]) > 15

    def state_dict(self) -> dict[str, Any]:
        return {"memory": self.memory[-20:]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.memory[:] = state["memory"]


class Binary(Cusum):
    """State that JSON cannot hold."""

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "values": (1, 2)}


class Refusing(Cusum):
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        raise ValueError("another version")


class Growing(Cusum):
    """State that grows without a bound."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[str] = []

    def update(self, value: float) -> bool:
        self.all.append("x" * 100_000)
        return False

    def state_dict(self) -> dict[str, Any]:
        return {"all": self.all}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.all = list(state["all"])


class Stateless:
    """No state at all, so no detector of ours."""

    def update(self, value: float) -> bool:
        return False
