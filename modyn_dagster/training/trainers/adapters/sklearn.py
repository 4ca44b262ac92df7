"""Trainer of classifiers and regressors with the interface of scikit-learn."""

import inspect
from contextlib import AbstractContextManager
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError, TrainingError
from modyn_dagster.spec.learning.trainers import SklearnSpec, nested_estimators
from modyn_dagster.training.trainers.adapters.libraries import THREADS, library_version
from modyn_dagster.training.trainers.estimators import build_estimator
from modyn_dagster.training.trainers.protocol import Inputs, LearningTask, TrainingSamples, Weights
from modyn_dagster.training.trainers.stored.skops_file import dump_estimator, load_estimator

_FIELD: Final = "training.model"
#: Ensembles whose number of trees is `max_iter`; other ensembles call it `n_estimators`.
_BY_ITERATIONS: Final = frozenset({"HistGradientBoostingClassifier", "HistGradientBoostingRegressor"})


class SklearnTrainer:
    """Fits an estimator at once, and continues it by ``partial_fit`` or, where it has that alone, by ``warm_start``.

    Models that continue by ``partial_fit`` are fitted by it from the first on: it is told all classes of the dataset then.
    Parameters ``random_state`` that are not given are the seed.

    Args:
        spec: class and parameters.
        task: task of the models.

    Raises:
        ConfigError: the class cannot be imported, refuses its parameters, or is of another kind than the task.
        MissingExtra: scikit-learn or skops is not installed.
    """

    def __init__(self, spec: SklearnSpec, task: LearningTask) -> None:
        self.library = ("scikit-learn", library_version("scikit-learn", "sklearn", task.source, spec.name))
        library_version("skops", "sklearn", task.source, spec.name)
        from sklearn.base import BaseEstimator

        self._task = task
        paths = [spec.estimator, *(path for _, path in nested_estimators(dict(spec.parameters)))]
        self._packages = frozenset(path.partition(".")[0].partition(":")[0] for path in paths)
        self._estimator = build_estimator(spec.estimator, spec.parameters, BaseEstimator, source=task.source, field=_FIELD)
        _refuse_jobs(self._estimator, task.source)
        _require_kind(self._estimator, spec.estimator, task)
        self._partial = hasattr(self._estimator, "partial_fit")
        self._warm = not self._partial and "warm_start" in self._estimator.get_params()
        self.continues = self._partial or self._warm
        self._by_partial_fit = self._partial and task.continued
        method = self._estimator.partial_fit if self._by_partial_fit else None
        self.takes_weights = _weights_name(self._estimator, method) is not None

    def fit(self, samples: TrainingSamples, weights: Weights, previous: Any | None, seed: int) -> Any:
        """Fit the estimator of the spec, or continue a previous one."""
        estimator = self._fresh(seed) if previous is None else previous
        if previous is not None and self._warm:
            _require_same_classes(previous, samples, self._task)
            self._grow(previous)
        with self._limited():
            if self._by_partial_fit:
                return estimator.partial_fit(samples.inputs, samples.truth, **self._extras(estimator.partial_fit, weights))
            return estimator.fit(samples.inputs, samples.truth, **self._extras(None, weights))

    def predict(self, model: Any, inputs: Inputs) -> npt.NDArray[Any]:
        """Probabilities, or the softmax of decision values where an estimator has those alone; targets of a regressor."""
        with self._limited():
            if self._task.kind == "target":
                return np.asarray(model.predict(inputs), dtype=np.float64).reshape(len(inputs))
            if hasattr(model, "predict_proba"):
                found = np.asarray(model.predict_proba(inputs), dtype=np.float64)
            else:
                found = _softmax(np.asarray(model.decision_function(inputs), dtype=np.float64))
        probabilities = np.zeros((len(inputs), self._task.n_outputs))
        probabilities[:, np.asarray(model.classes_, dtype=np.int64)] = found
        return probabilities

    def to_bytes(self, model: Any) -> bytes:
        """Archive of skops."""
        return dump_estimator(model, self._packages, source=self._task.source)

    def from_bytes(self, content: bytes) -> Any:
        """Estimator of an archive, with classes of the spec's packages alone."""
        return load_estimator(content, self._packages, source=self._task.source)

    def _fresh(self, seed: int) -> Any:
        from sklearn.base import clone

        estimator = clone(self._estimator)
        parameters = estimator.get_params()
        unset = [name for name, value in parameters.items() if name.split("__")[-1] == "random_state" and value is None]
        estimator.set_params(**dict.fromkeys(unset, seed))
        if self._warm and self._task.continued:
            estimator.set_params(warm_start=True)
        return estimator

    def _grow(self, estimator: Any) -> None:
        """Let an ensemble add as many trees as a fresh one has; other estimators start from their last solution."""
        wanted = self._estimator.get_params()
        if type(estimator).__name__ in _BY_ITERATIONS:
            estimator.set_params(max_iter=estimator.n_iter_ + wanted["max_iter"])
        elif "n_estimators" in wanted:
            estimator.set_params(n_estimators=len(estimator.estimators_) + wanted["n_estimators"])

    def _extras(self, method: Any, weights: Weights) -> dict[str, Any]:
        extras: dict[str, Any] = {}
        if method is not None and "classes" in inspect.signature(method).parameters:
            extras["classes"] = np.arange(self._task.n_outputs)
        name = _weights_name(self._estimator, method)
        return extras if weights is None or name is None else extras | {name: weights}

    def _limited(self) -> AbstractContextManager[Any]:
        from threadpoolctl import threadpool_limits

        return cast(AbstractContextManager[Any], threadpool_limits(self._task.threads))


def _refuse_jobs(estimator: Any, source: str) -> None:
    """Refuse a number of jobs at any depth: threads are those of the pipeline."""
    for name, value in estimator.get_params().items():
        if name.split("__")[-1] == "n_jobs" and value is not None:
            raise ConfigError(source, f"{_FIELD}.parameters.{name}", value, THREADS)


def _require_kind(estimator: Any, path: str, task: LearningTask) -> None:
    from sklearn.base import is_classifier, is_regressor

    kind, fits = ("classifier", is_classifier) if task.kind == "class" else ("regressor", is_regressor)
    if not fits(estimator):
        rule = f"is no {kind}, and the label to learn is a {task.kind}"
        raise ConfigError(task.source, f"{_FIELD}.estimator", path, rule)
    if task.kind == "class" and not any(hasattr(estimator, name) for name in ("predict_proba", "decision_function")):
        rule = "has neither predict_proba nor decision_function: wrap it in sklearn.calibration:CalibratedClassifierCV"
        raise ConfigError(task.source, f"{_FIELD}.estimator", path, rule)


def _weights_name(estimator: Any, method: Any) -> str | None:
    """Name by which ``fit``, or another method, takes weights of samples; None if it takes none. Pipelines hand them on."""
    if method is not None:
        return "sample_weight" if "sample_weight" in inspect.signature(method).parameters else None
    from sklearn.pipeline import Pipeline
    from sklearn.utils.validation import has_fit_parameter

    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        inner = _weights_name(last, None)
        return None if inner is None else f"{name}__{inner}"
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None


def _require_same_classes(previous: Any, samples: TrainingSamples, task: LearningTask) -> None:
    classes = np.unique(samples.truth)
    if task.kind == "class" and not np.array_equal(classes, previous.classes_):
        raise TrainingError(
            f"{task.source}: training.use_previous_model: {type(previous).__name__} continues by warm_start, which needs the "
            f"same classes: the previous model knows {previous.classes_.tolist()}, the training set has {classes.tolist()}"
        )


def _softmax(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Probabilities of decision values: one column is that of the second of two classes."""
    wide = np.column_stack([np.zeros(len(scores)), scores]) if scores.ndim == 1 else scores
    powers = np.exp(wide - wide.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
