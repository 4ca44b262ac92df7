"""Composite models of the user's own: a function that chooses a model for each interval, by import path."""

from typing import Any, Final, Protocol, cast

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.composite.scores import Choice
from modyn_dagster.imports import made_by_factory
from modyn_dagster.spec.evaluation import CompositeSpec

_SOURCE: Final = "evaluation.composite"

Times = npt.NDArray[np.datetime64]


class CompositeChoice(Protocol):
    """Pure function of the models' last training times and of the intervals' anchors."""

    def __call__(self, train_ends: Times, anchors: Times, /) -> npt.ArrayLike:
        """Index of the model that stands for the composite on each interval, ``int[n]``; -1 where none does.

        Args:
            train_ends: last training time of each model so far, in order of training, ``datetime64[us][m]``, read-only.
            anchors: of the intervals, ``datetime64[us][n]``, read-only.
        """


def composite_choice(block: CompositeSpec, *, source: str = _SOURCE, field: str = "") -> CompositeChoice:
    """Function that ``factory(**config)`` returns.

    Args:
        block: of the spec.
        source: file or pipeline of the block, for errors.
        field: of the block there; empty where the source is the block itself.

    Raises:
        ImportPathError: the path cannot be imported, or its result cannot be called.
        ConfigError: the factory refused its config.
    """
    what = "a function of training ends and anchors"
    return cast(CompositeChoice, made_by_factory(block.factory, block.config, what=what, source=source, field=field))


def check_composite_code(block: CompositeSpec | None, *, source: str) -> None:
    """Call the factory of a pipeline's own composite model; does nothing without one. Raises as ``composite_choice``."""
    if block is not None:
        composite_choice(block, source=source, field="evaluation.composite")


def currently_chosen(block: CompositeSpec, train_ends: npt.ArrayLike, anchors: npt.ArrayLike) -> Choice:
    """Index of the chosen model per interval, ``int64[n]``; -1 where there is none.

    Args:
        block: of the spec.
        train_ends: last training times of the models, in order of training.
        anchors: of the intervals.

    Raises:
        ConfigError: the function fails, or returns anything but indices of models.
    """
    ends, at = (np.asarray(times, dtype="datetime64[us]") for times in (train_ends, anchors))
    return called(composite_choice(block), block.factory, ends, at)


def called(choice: CompositeChoice, name: str, ends: Times, anchors: Times) -> Choice:
    """Call a function of the user's, and check what it returns. Raises ``ConfigError``."""
    given = ends.copy(), anchors.copy()
    for times in given:
        times.flags.writeable = False
    try:
        found: npt.NDArray[Any] = np.asarray(choice(*given))
    except Exception as error:
        raise ConfigError(_SOURCE, "factory", name, f"failed: {type(error).__name__}: {error}") from error
    if found.shape != anchors.shape or (found.size and found.dtype.kind not in "iu"):
        rule = f"its function must return an index per interval, int[{len(anchors)}], not {found.dtype}{list(found.shape)}"
        raise ConfigError(_SOURCE, "factory", name, rule)
    wrong = np.flatnonzero((found < -1) | (found >= len(ends)))
    if len(wrong):
        place, there = wrong[0], f"there are {len(ends)}, from 0 on, and -1 for none"
        rule = f"its function chose model {found[place]} for interval {place}; {there}"
        raise ConfigError(_SOURCE, "factory", name, rule)
    return found.astype(np.int64)
