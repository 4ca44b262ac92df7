"""Composite models as users write them: good ones, and one for each law that they break."""

import itertools
import random
from typing import Any

import numpy as np

from modyn_dagster.evaluation import currently_active, currently_trained


def active() -> Any:
    return currently_active


def trained() -> Any:
    return currently_trained


def before_last() -> Any:
    """The model before the active one."""
    return lambda ends, anchors: np.maximum(currently_active(ends, anchors) - 1, -1)


def returning(value: Any) -> Any:
    return lambda ends, anchors: value


def failing() -> Any:
    def choose(ends: Any, anchors: Any) -> Any:
        raise KeyError("no model")

    return choose


def writing() -> Any:
    def choose(ends: Any, anchors: Any) -> Any:
        anchors[:] = anchors[0]
        return currently_active(ends, anchors)

    return choose


def by_chance() -> Any:
    return lambda ends, anchors: [random.randint(-1, len(ends) - 1) for _ in anchors]  # noqa: S311 - chance is the fault


def counted() -> Any:
    calls = itertools.count()
    return lambda ends, anchors: np.full(len(anchors), next(calls) % (len(ends) + 1) - 1)


def in_turn() -> Any:
    """Models in turn, whatever the anchors."""
    return lambda ends, anchors: np.arange(len(anchors)) % (len(ends) + 1) - 1
