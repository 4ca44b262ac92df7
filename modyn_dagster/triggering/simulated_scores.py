"""Scores of a simulation: arrays and callables in the place of measurements."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError
from modyn_dagster.keys import KeyRange
from modyn_dagster.triggering.measurement import (
    DetectorNeed,
    DriftNeed,
    Measured,
    Measurement,
    MeasurementSpec,
    Need,
    PerformanceNeed,
)

#: ``(start, stop, labels)``: current window as indices of the stream, and its labels or None.
ScoreFunction = Callable[[int, int, npt.NDArray[Any] | None], Any]
#: An array ``[n]``, a callable, or a dict of these by metric, or by member of an ensemble, nested like the ensemble.
Scores = npt.ArrayLike | ScoreFunction | Mapping[str, Any]


class SimulatedScores:
    """Answers a policy's needs from arrays and callables.

    Args:
        scores: see ``simulate``; None for a policy without needs.
        labels: ``[n]`` or None, for callables.
        index_of: index in the stream of the sample with a key; -1 for the origin.
    """

    def __init__(self, scores: Scores | None, labels: npt.NDArray[Any] | None, index_of: Callable[[int], int]) -> None:
        self._scores = scores
        self._labels = labels
        self._index_of = index_of
        self._arrays: dict[tuple[str, str], npt.NDArray[np.float64]] = {}

    def answer(self, needs: MeasurementSpec) -> Measurement:
        """An answer to every need, by path."""
        return {path: Measured(self._values(path, need)) for path, need in needs.items()}

    def _values(self, path: str, need: Need) -> dict[str, float | None]:
        window = _current(need)
        start, stop = self._index_of(window.after) + 1, self._index_of(window.until) + 1
        names = _names(need)
        scores = self._scores_of_member(path, names)
        if isinstance(scores, Mapping):
            values = {
                name: self._named_score(scores[name], path, name, (need.ordinal, start, stop))
                for name in _entries(scores, need, names, _field(path))
            }
        elif callable(scores):
            values = _scores_by_name(self._call(scores, start, stop), names, _field(path))
        elif len(names) > 1:
            raise _error(_field(path), scores, f"must be a dict with one entry for each of {', '.join(names)}")
        else:
            values = {names[0]: self._array_score(scores, path, names[0], need.ordinal, stop)}
        return {"n_samples": float(stop - start), **values} if isinstance(need, PerformanceNeed) else values

    def _scores_of_member(self, path: str, names: Sequence[str]) -> Any:
        """Scores of the policy at a path; a callable serves all members below it."""
        scores: Any = self._scores
        parent = ""
        for part in path.split("/") if path else ():
            if callable(scores):
                return scores
            if not isinstance(scores, Mapping):
                raise _missing(_field(parent), scores, f"must be a dict with an entry for member {part!r}", names)
            if part not in scores:
                raise _missing(_field(parent), sorted(map(str, scores)), f"needs an entry for member {part!r}", names)
            parent, scores = f"{parent}/{part}" if parent else part, scores[part]
        if scores is None:
            raise _missing(_field(path), None, "is missing: the policy measures", names)
        return scores

    def _named_score(self, scores: Any, path: str, name: str, window: tuple[int, int, int]) -> float | None:
        """Score of one metric; ``window`` is the ordinal of the point, and the window's start and stop."""
        ordinal, start, stop = window
        if callable(scores):
            return _number(self._call(scores, start, stop), f"{_field(path)}.{name}")
        return self._array_score(scores, path, name, ordinal, stop)

    def _call(self, function: ScoreFunction, start: int, stop: int) -> Any:
        return function(start, stop, None if self._labels is None else self._labels[start:stop])

    def _array_score(self, scores: Any, path: str, name: str, ordinal: int, stop: int) -> float | None:
        array = self._arrays.get((path, name))
        if array is None:
            array = self._arrays[path, name] = _as_array(scores, _field(path))
        if ordinal >= len(array):
            rule = (
                f"too short: the policy's decision point {ordinal}, counted from 0, at sample {stop - 1} needs the score of "
                f"{name}; give one for every point, measured or not"
            )
            raise _error(_field(path), f"{len(array)} scores", rule)
        return _number(array[ordinal], _field(path))


def _current(need: Need) -> KeyRange:
    if isinstance(need, DriftNeed):
        return need.current
    return KeyRange(need.since, need.window.until) if isinstance(need, DetectorNeed) else need.window


def _names(need: Need) -> list[str]:
    """Names that an answer must have; a label-free need is calibrated, but asks for no expected accuracy."""
    if isinstance(need, DriftNeed):
        return list(need.metrics)
    if isinstance(need, DetectorNeed):
        return ["detections"]
    return [need.metric] if need.calibrate is None or need.label_free else [need.metric, "expected_accuracy"]


def _entries(scores: Mapping[str, Any], need: Need, names: Sequence[str], field: str) -> list[str]:
    """Names to read from a dict by metric: required ones, then optional ones."""
    optional = ("n_samples", "expected_accuracy") if isinstance(need, PerformanceNeed) else ()
    if missing := [name for name in names if name not in scores]:
        raise _error(field, sorted(map(str, scores)), f"needs an entry for {', '.join(missing)}")
    if unknown := [str(name) for name in scores if name not in names and name not in optional]:
        raise _error(field, unknown, f"has entries that nothing asks for; asked for: {', '.join(names)}")
    return [name for name in (*names, *optional) if name in scores]


def _scores_by_name(answer: Any, names: Sequence[str], field: str) -> dict[str, float | None]:
    """Scores from the answer of a callable: a number, or numbers by name."""
    if isinstance(answer, Mapping):
        if missing := [name for name in names if name not in answer]:
            raise _error(field, answer, f"the callable's answer lacks {', '.join(missing)}")
        return {str(name): _number(value, field) for name, value in answer.items()}
    if len(names) > 1:
        raise _error(field, answer, f"the callable must return a dict with {', '.join(names)}")
    return {names[0]: _number(answer, field)}


def _as_array(scores: Any, field: str) -> npt.NDArray[np.float64]:
    try:
        array = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise _error(field, scores, "must be an array of numbers or a callable (start, stop, labels)") from error
    if array.ndim != 1:
        raise _error(field, f"shape {list(array.shape)}", "must have shape [n], one score for each decision point")
    return array


def _number(value: Any, field: str) -> float | None:
    """Score; None where it is None or NaN, so undefined."""
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise _error(field, value, "must be a number or None") from error
    return None if np.isnan(number) else number


def _field(path: str) -> str:
    return ".".join(["scores", *path.split("/")]) if path else "scores"


def _missing(field: str, value: object, rule: str, names: Sequence[str]) -> ConfigError:
    return _error(
        field, value, f"{rule} ({', '.join(names)}); give an array with one score for each decision point, or a callable"
    )


def _error(field: str, value: object, rule: str) -> ConfigError:
    return ConfigError("simulate", field, value, rule)
