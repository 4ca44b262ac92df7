"""Classes and targets that a model learns: labels of the dataset, checked, and changed by the label transform."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.data.samples import Samples
from modyn_dagster.errors import ConfigError, TrainingError
from modyn_dagster.imports import import_callable
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.learning.transforms import (
    GroupedLabels,
    LabelTransform,
    OwnLabels,
    PositiveLabels,
    ThresholdLabels,
    kind_after,
)
from modyn_dagster.spec.tasks.task import RankingTask, TaskSpec, truth_columns
from modyn_dagster.spec.training import TaskKind, TrainingSpec, is_unlabelled
from modyn_dagster.training.data import Task
from modyn_dagster.training.parsing.function import reason_of
from modyn_dagster.training.transforms.truth import ranking_truth, several_columns

Truth = npt.NDArray[np.int64] | npt.NDArray[np.float64]


def truth_of(samples: Samples, kind: TaskKind, *, source: str) -> Truth:
    """Labels or targets of samples; ``TrainingError`` names the first key that has none. Zeros for a task without a label."""
    return checked_truth(samples.labels if kind == "class" else samples.targets, samples.keys, kind, source=source)


def checked_truth(truth: Truth | None, keys: KeyArray, kind: TaskKind, *, source: str) -> Truth:
    """Labels or targets of some keys, none of them missing; zeros for a task without a label."""
    if is_unlabelled(kind):
        return np.zeros(len(keys))
    if truth is None:
        raise ConfigError(source, "training", kind, "the dataset has no such label to learn")
    missing = truth < 0 if kind == "class" else ~np.isfinite(truth).all(axis=tuple(range(1, truth.ndim)))
    if missing.any():
        first = int(np.argmax(missing))
        raise TrainingError(f"{source}: the sample with key {keys[first]} has no label ({truth[first]})")
    return truth


def targets_of(
    truth: Truth, keys: KeyArray, kind: TaskKind, n_outputs: int, *, source: str, exact: bool = False
) -> npt.NDArray[Any]:
    """``int64[n]`` classes below ``n_outputs``, or targets ``float32[n]``, of several columns ``float32[n, columns]``.

    ``exact`` keeps targets ``float64``. An objective without labels replaces targets by its own.
    """
    if kind != "class":
        return truth.astype(np.float64 if exact else np.float32)
    outside = truth >= n_outputs
    if outside.any():
        first = int(np.argmax(outside))
        raise TrainingError(
            f"{source}: the sample with key {keys[first]} has class {truth[first]}, "
            f"the dataset allows classes 0 to {n_outputs - 1}"
        )
    return truth.astype(np.int64)


_FIELD = "training.label_transform"


class Relabeling:
    """Mapping of a dataset's label to the learnt one; without a transform the label stays.

    Args:
        spec: spec of the transform, with classes by number (``numbered``).
        given: kind of the dataset's label.
        source: name of the pipeline, for errors.
        learns: spec of the task, whose truth may be several columns.

    Attributes:
        given: kind of the label before the transform.
        kind: kind of the label after it.
        n_classes: number of classes after it; None for a target, or without a transform.
        columns: columns that are read for the truth, where it is more than the label.
        exact: targets stay float64, as numbers of groups must.
    """

    def __init__(self, spec: LabelTransform | None, given: TaskKind, source: str, learns: TaskSpec | None = None) -> None:
        self.spec, self.given, self._source = spec, given, source
        self.columns, self._learns = truth_columns(learns), learns
        self.exact = isinstance(learns, RankingTask)
        self.kind: TaskKind = "target" if self.columns else kind_after(spec, given)
        self.n_classes = _n_classes(spec)
        own = spec if isinstance(spec, OwnLabels) else None
        self._own = own and partial(import_callable(own.function, source=source, field=f"{_FIELD}.function"), **own.config)

    def task(self, task: Task) -> Task:
        """Learning task after the label transform."""
        if self.columns:
            return Task(self.kind, None, task.exclude | frozenset(self.columns))
        return task if self.spec is None else Task(self.kind, self.n_classes, task.exclude)

    def learnt(self, truth: Truth, keys: KeyArray) -> Truth:
        """Transform labels of labelled samples. ``TrainingError`` names the first key whose label is in no group."""
        if self.spec is None:
            return truth
        found = self._of(truth, keys)
        if self.kind == "class" and (found == self.n_classes).any():
            first = int(np.argmax(found == self.n_classes))
            raise TrainingError(
                f"{self._source}: {_FIELD}: the sample with key {keys[first]} has class {truth[first]}, in no group"
            )
        return found

    def judged(self, samples: Samples) -> Samples:
        """Transform labels for evaluation: missing ones stay missing, a label in no group becomes a class no model knows.

        A task without a label has zeros as targets, so that no sample is without.
        """
        if is_unlabelled(self.given):
            return replace(samples, labels=None, targets=np.zeros(len(samples)))
        if self.columns:
            return replace(samples, labels=None, targets=self.together(samples))
        truth = samples.labels if self.given == "class" else samples.targets
        if self.spec is None or truth is None:
            return samples
        present = truth >= 0 if self.given == "class" else np.isfinite(truth)
        found = self._of(truth[present], samples.keys[present])
        if self.kind == "class":
            labels = np.full(len(truth), -1, dtype=np.int64)
            labels[present] = found
            return replace(samples, labels=labels, targets=None)
        targets = np.full(len(truth), np.nan)
        targets[present] = found
        return replace(samples, labels=None, targets=targets)

    def together(self, samples: Samples) -> npt.NDArray[np.float64]:
        """Truth of several values, ``float64[n, values]``: relevance and group of a ranking, else columns; NaN for a missing one.

        ``TrainingError`` names a column that the samples lack or that does not fit, or the key of a value that does not.
        """
        if isinstance(self._learns, RankingTask):
            return ranking_truth(samples, self._learns, source=self._source)
        return several_columns(samples, self._learns, source=self._source)

    def _of(self, truth: Truth, keys: KeyArray) -> Truth:
        """Map labels; a class in no group becomes the number of groups."""
        match self.spec:
            case GroupedLabels(groups=groups):
                found = np.full(len(truth), len(groups), dtype=np.int64)
                for number, group in enumerate(groups):
                    found[_among(truth, group) > 0] = number
                return found
            case PositiveLabels(positive=positive):
                return _among(truth, positive)
            case ThresholdLabels(above=above):
                return (truth > above).astype(np.int64)
        return self._by_own_code(truth, keys)

    def _by_own_code(self, truth: Truth, keys: KeyArray) -> Truth:
        what = f"{self._source}: {_FIELD}: {self.spec.function if isinstance(self.spec, OwnLabels) else None}"
        try:
            found = np.asarray(self._own(truth.copy())) if self._own else truth
        except Exception as error:
            raise TrainingError(f"{what} failed on {self._culprit(truth, keys)}: {reason_of(error)}") from error
        if found.shape != truth.shape or found.dtype.kind not in ("biu" if self.kind == "class" else "biuf"):
            wanted = "whole numbers" if self.kind == "class" else "numbers"
            raise TrainingError(f"{what} returned {found.dtype}{list(found.shape)}, expected {wanted} for {len(truth)} labels")
        wrong = (found < 0) | (found >= self.n_classes) if self.n_classes is not None else ~np.isfinite(found)
        if wrong.any():
            first = int(np.argmax(wrong))
            allowed = "a finite number" if self.n_classes is None else f"one of the classes 0 to {self.n_classes - 1}"
            made = f"made {found[first]} of {truth[first]}, the label of the sample with key {keys[first]}"
            raise TrainingError(f"{what} {made}; it must be {allowed}")
        return found.astype(np.int64) if self.kind == "class" else found.astype(np.float64)

    def _culprit(self, truth: Truth, keys: KeyArray) -> str:
        for i, key in enumerate(keys.tolist()):
            try:
                if self._own:
                    self._own(truth[i : i + 1].copy())
            except Exception:  # noqa: BLE001 - user code may raise anything; the caller tells what it raised first
                return f"{truth[i]}, the label of the sample with key {key}"
        return f"{len(keys)} labels together, from key {keys[0]} on, and on none alone"


def numbered(spec: TrainingSpec, classes: Sequence[str], *, pinned: bool, source: str) -> TrainingSpec:
    """Replace names of classes by numbers where a sample of the class exists.

    ``ConfigError`` for a name that the dataset can never have: it pins its classes, or they have no names.
    """
    known = {name: number for number, name in enumerate(classes)}

    def of(name: str | int) -> str | int:
        number = known.get(str(name), name if isinstance(name, int) and not pinned else None)
        if number is None and pinned:
            raise ConfigError(source, _FIELD, name, f"is no class of the dataset; known: {', '.join(classes) or 'numbers'}")
        return name if number is None else number

    change: Mapping[str, Any]
    match spec.label_transform:
        case GroupedLabels(groups=groups):
            change = {"groups": [[of(name) for name in group] for group in groups]}
        case PositiveLabels(positive=positive):
            change = {"positive": [of(name) for name in positive]}
        case _:
            return spec
    return spec.model_copy(update={"label_transform": spec.label_transform.model_copy(update=change)})


def _among(truth: Truth, classes: Sequence[str | int]) -> npt.NDArray[np.int64]:
    """Return 1 where a class is one of ``classes``, else 0."""
    return np.isin(truth, [number for number in classes if isinstance(number, int)]).astype(np.int64)


def _n_classes(spec: LabelTransform | None) -> int | None:
    match spec:
        case GroupedLabels(groups=groups):
            return len(groups)
        case PositiveLabels() | ThresholdLabels():
            return 2
        case OwnLabels(n_classes=n):
            return n
    return None
