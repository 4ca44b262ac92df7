"""Trainer of river's classifiers and regressors, which learn one sample after the other."""

import inspect
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.learning.trainers import RiverSpec
from modyn_dagster.training.trainers.adapters.libraries import library_version
from modyn_dagster.training.trainers.estimators import build_estimator
from modyn_dagster.training.trainers.protocol import Inputs, LearningTask, TrainingSamples, Weights
from modyn_dagster.training.trainers.stored.object_graph import decode, encode

_FIELD: Final = "training.model"
#: Parts of river that open files and addresses, or are no models.
_NOT_IN_MODELS: Final = ("river.api", "river.checks", "river.datasets", "river.stream")


class RiverTrainer:
    """Lets a model of river learn the samples of a training set in the order of their keys, and go on from an earlier model.

    Parameters ``seed`` that are not given are the seed of the fit.

    Args:
        spec: class and parameters.
        task: task of the models.

    Raises:
        ConfigError: the class cannot be imported, refuses its parameters, or is of another kind than the task.
        MissingExtra: river is not installed.
    """

    continues = True

    def __init__(self, spec: RiverSpec, task: LearningTask) -> None:
        self.library = ("river", library_version("river", "river", task.source, spec.name))
        self._spec, self._task = spec, task
        model = self._fresh(0)
        self.takes_weights = _takes_weights(model)
        _require_kind(model, spec.estimator, task)

    def fit(self, samples: TrainingSamples, weights: Weights, previous: Any | None, seed: int) -> Any:
        """Learn the first samples, by a fresh model or the previous one."""
        return self.partial_fit(self._fresh(seed) if previous is None else previous, samples, weights)

    def partial_fit(self, model: Any, samples: TrainingSamples, weights: Weights) -> Any:
        """Learn more samples."""
        truths = samples.truth.tolist()
        for i, row in enumerate(self._rows(samples.inputs)):
            if weights is None:
                model.learn_one(row, truths[i])
            else:
                model.learn_one(row, truths[i], w=float(weights[i]))
        return model

    def predict(self, model: Any, inputs: Inputs) -> npt.NDArray[Any]:
        """Probabilities, which are uniform where the model has none yet; targets of a regressor."""
        rows = self._rows(inputs)
        if self._task.kind == "target":
            return np.array([float(model.predict_one(row) or 0.0) for row in rows])
        n = self._task.n_outputs
        found = np.zeros((len(inputs), n))
        for i, row in enumerate(rows):
            for number, probability in (model.predict_proba_one(row) or {}).items():
                found[i, int(number)] = probability
        sums = found.sum(axis=1, keepdims=True)
        return np.where(sums > 0, found / np.where(sums > 0, sums, 1.0), 1 / n)

    def to_bytes(self, model: Any) -> bytes:
        """JSON of the model's objects."""
        return encode(model, "river", source=self._task.source)

    def from_bytes(self, content: bytes) -> Any:
        """Model of JSON, with classes of river and some of the standard library alone."""
        return decode(content, "river", _NOT_IN_MODELS, source=self._task.source)

    def _rows(self, inputs: Inputs) -> Any:
        return (dict(zip(self._task.columns, row, strict=True)) for row in inputs.astype(np.float64).tolist())

    def _fresh(self, seed: int) -> Any:
        from river.base import Estimator

        spec, source = self._spec, self._task.source
        return build_estimator(spec.estimator, spec.parameters, Estimator, source=source, field=_FIELD, unset={"seed": seed})


def _require_kind(model: Any, path: str, task: LearningTask) -> None:
    from river.utils.inspect import extract_relevant, isclassifier, isregressor

    kind, fits = ("classifier", isclassifier) if task.kind == "class" else ("regressor", isregressor)
    if not fits(model):
        rule = f"is no {kind} of river, and the label to learn is a {task.kind}"
        raise ConfigError(task.source, f"{_FIELD}.estimator", path, rule)
    if task.n_outputs > 2 and not getattr(extract_relevant(model), "_multiclass", True):
        rule = f"tells two classes apart, and there are {task.n_outputs}: wrap it in river.multiclass:OneVsRestClassifier"
        raise ConfigError(task.source, f"{_FIELD}.estimator", path, rule)


def _takes_weights(model: Any) -> bool:
    """Test that a model, or the last step of a pipeline, weighs samples by an argument ``w``."""
    from river.compose import Pipeline

    last = list(model.steps.values())[-1] if isinstance(model, Pipeline) else model
    return "w" in inspect.signature(last.learn_one).parameters
