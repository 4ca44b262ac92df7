"""Trainers of a user's own, sound and unsound ones, by import path."""

import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from modyn_dagster.training.trainers.protocol import LearningTask


class Means:
    """Nearest mean of a class; the means go on from those of the previous model."""

    takes_weights = True
    continues = True
    library = ("own_trainers", "1")

    def __init__(self, task: LearningTask, scale: float = 1.0) -> None:
        self.task, self.scale = task, scale

    def fit(self, samples: Any, weights: Any, previous: Any, seed: int) -> Any:
        model = previous or {
            "sums": [[0.0] * len(self.task.columns) for _ in range(self.task.n_outputs)],
            "n": [0.0] * self.task.n_outputs,
        }
        return self._add(model, samples, weights)

    def _add(self, model: Any, samples: Any, weights: Any) -> Any:
        each = np.ones(len(samples)) if weights is None else weights
        for number in range(self.task.n_outputs):
            rows = samples.truth == number
            model["sums"][number] = (np.array(model["sums"][number]) + each[rows] @ samples.inputs[rows]).tolist()
            model["n"][number] += float(each[rows].sum())
        return model

    def predict(self, model: Any, inputs: Any) -> Any:
        means = np.array(model["sums"]) / np.maximum(np.array(model["n"]), 1e-9)[:, None]
        powers = np.exp(-self.scale * ((inputs[:, None, :] - means) ** 2).sum(axis=2))
        return powers / powers.sum(axis=1, keepdims=True)

    def to_bytes(self, model: Any) -> bytes:
        return json.dumps(model).encode()

    def from_bytes(self, content: bytes) -> Any:
        return json.loads(content)


class ChunkedMeans(Means):
    """The same, chunk by chunk; notes the size of each."""

    sizes: list[int] = []

    def fit(self, samples: Any, weights: Any, previous: Any, seed: int) -> Any:
        self.sizes.append(len(samples))
        return super().fit(samples, weights, previous, seed)

    def partial_fit(self, model: Any, samples: Any, weights: Any) -> Any:
        self.sizes.append(len(samples))
        return self._add(model, samples, weights)


class Fixed(Means):
    """Neither weighs nor continues."""

    takes_weights = False
    continues = False


class Pickled(Means):
    """Writes pickles."""

    def to_bytes(self, model: Any) -> bytes:
        return pickle.dumps(model)


class Forgetful(Means):
    """Writes other bytes than it has read."""

    def from_bytes(self, content: bytes) -> Any:
        return json.loads(content) | {"read": True}


class Drawing(Means):
    """Draws from a generator that the operating system seeds."""

    def fit(self, samples: Any, weights: Any, previous: Any, seed: int) -> Any:
        return super().fit(samples, weights, previous, seed) | {"noise": np.random.default_rng().random()}


class Wide(Means):
    """Predicts a column too many."""

    def predict(self, model: Any, inputs: Any) -> Any:
        return np.column_stack([super().predict(model, inputs), np.zeros(len(inputs))])


class Texts(Means):
    """Writes text instead of bytes."""

    def to_bytes(self, model: Any) -> Any:
        return json.dumps(model)


class Even(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # the library has no types
    """Estimator that weighs samples when it is fitted, and not when it goes on."""

    def fit(self, inputs: Any, truth: Any, sample_weight: Any = None) -> Any:
        self.classes_ = np.unique(truth)
        return self

    def partial_fit(self, inputs: Any, truth: Any, classes: Any = None) -> Any:
        return self.fit(inputs, truth if classes is None else classes)

    def predict_proba(self, inputs: Any) -> Any:
        return np.full((len(inputs), len(self.classes_)), 1 / len(self.classes_))


class Empty(Means):
    """Writes nothing."""

    def to_bytes(self, model: Any) -> bytes:
        return b""


class Half:
    """Has a half of the methods."""

    takes_weights = True

    def __init__(self, task: LearningTask) -> None: ...

    fit: Callable[..., Any] = lambda *_: None
