"""Arrays and callables that stand in for measurements when a policy is tried out."""

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

#: ``(start, stop, labels)``: the current window as indices of the stream, and its labels if there are any.
ScoreFunction = Callable[[int, int, npt.NDArray[Any] | None], Any]
#: An array ``[n]``, a callable, or either by metric, or by name of an ensemble's member, which nests.
Scores = npt.ArrayLike | ScoreFunction | Mapping[str, Any]


class SimulatedScores:
    """Answers a policy's needs from what was given.

    Args:
        scores: see ``simulate``; None where a policy is expected to need nothing.
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
        place = (need.ordinal, start, stop)
        names = _names(need)
        given = self._of_member(path, names)
        if isinstance(given, Mapping):
            values = {name: self._one(given, path, name, place) for name in _entries(given, need, names, _field(path))}
        elif callable(given):
            values = _by_name(self._called(given, start, stop), names, _field(path))
        elif len(names) > 1:
            raise _error(_field(path), given, f"must be a dict with one entry for each of {', '.join(names)}")
        else:
            values = {names[0]: self._taken(given, path, names[0], need.ordinal, stop)}
        return {"n_samples": float(stop - start), **values} if isinstance(need, PerformanceNeed) else values

    def _of_member(self, path: str, names: Sequence[str]) -> Any:
        """What was given for the policy at a path; a callable stands for all members below it."""
        given: Any = self._scores
        walked = ""
        for part in path.split("/") if path else ():
            if callable(given):
                return given
            if not isinstance(given, Mapping):
                raise _missing(_field(walked), given, f"must be a dict with an entry for member {part!r}", names)
            if part not in given:
                raise _missing(_field(walked), sorted(map(str, given)), f"needs an entry for member {part!r}", names)
            walked, given = f"{walked}/{part}" if walked else part, given[part]
        if given is None:
            raise _missing(_field(path), None, "is missing: the policy measures", names)
        return given

    def _one(self, given: Mapping[str, Any], path: str, name: str, place: tuple[int, int, int]) -> float | None:
        ordinal, start, stop = place
        one = given[name]
        field = f"{_field(path)}.{name}"
        return _number(self._called(one, start, stop), field) if callable(one) else self._taken(one, path, name, ordinal, stop)

    def _called(self, function: ScoreFunction, start: int, stop: int) -> Any:
        return function(start, stop, None if self._labels is None else self._labels[start:stop])

    def _taken(self, given: Any, path: str, name: str, ordinal: int, stop: int) -> float | None:
        array = self._arrays.get((path, name))
        if array is None:
            array = self._arrays[path, name] = _as_array(given, _field(path))
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
    """What an answer must hold. Calibrated confidences need the last training window too, but no expected accuracy."""
    if isinstance(need, DriftNeed):
        return list(need.metrics)
    if isinstance(need, DetectorNeed):
        return ["detections"]
    return [need.metric] if need.calibrate is None or need.label_free else [need.metric, "expected_accuracy"]


def _entries(given: Mapping[str, Any], need: Need, names: Sequence[str], field: str) -> list[str]:
    """What to take from a dict by metric: all it must hold, and what else it may."""
    optional = ("n_samples", "expected_accuracy") if isinstance(need, PerformanceNeed) else ()
    if lacking := [name for name in names if name not in given]:
        raise _error(field, sorted(map(str, given)), f"needs an entry for {', '.join(lacking)}")
    if unknown := [str(name) for name in given if name not in names and name not in optional]:
        raise _error(field, unknown, f"has entries that nothing asks for; asked for: {', '.join(names)}")
    return [name for name in (*names, *optional) if name in given]


def _by_name(found: Any, names: Sequence[str], field: str) -> dict[str, float | None]:
    """What a callable returned: a number, or numbers by name."""
    if isinstance(found, Mapping):
        if lacking := [name for name in names if name not in found]:
            raise _error(field, found, f"the callable's answer lacks {', '.join(lacking)}")
        return {str(name): _number(value, field) for name, value in found.items()}
    if len(names) > 1:
        raise _error(field, found, f"the callable must return a dict with {', '.join(names)}")
    return {names[0]: _number(found, field)}


def _as_array(given: Any, field: str) -> npt.NDArray[np.float64]:
    try:
        array = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise _error(field, given, "must be an array of numbers or a callable (start, stop, labels)") from error
    if array.ndim != 1:
        raise _error(field, f"shape {list(array.shape)}", "must have shape [n], one score for each decision point")
    return array


def _number(value: Any, field: str) -> float | None:
    """A score; NaN and None are undefined ones."""
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise _error(field, value, "must be a number or None") from error
    return None if np.isnan(number) else number


def _field(path: str) -> str:
    return ".".join(["scores", *path.split("/")]) if path else "scores"


def _missing(field: str, found: object, rule: str, names: Sequence[str]) -> ConfigError:
    return _error(
        field, found, f"{rule} ({', '.join(names)}); give an array with one score for each decision point, or a callable"
    )


def _error(field: str, found: object, rule: str) -> ConfigError:
    return ConfigError("simulate", field, found, rule)
