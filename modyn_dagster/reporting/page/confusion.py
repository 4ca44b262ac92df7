"""Confusion of a run as content of the page: a matrix of few classes, else the most confused pairs; and scores by class."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from modyn_dagster.evaluation.composite.confusion import CompositeConfusion, Confusion, RunConfusion

#: Classes of a matrix that is shown whole.
MOST_CLASSES: Final = 12
#: Pairs of classes that are shown otherwise, those with the most samples.
MOST_PAIRS: Final = 30
#: Classes with scores of their own, those with the most samples.
MOST_ROWS: Final = 50


def confusion_content(confusion: RunConfusion | None) -> dict[str, Any] | None:
    """Confusion of a run as JSON values; None without any."""
    if confusion is None or not any(len(each.confusion.counts) for each in confusion.composites.values()):
        return None
    shown = {name: _composite(each) for name, each in confusion.composites.items()}
    numbers = sorted({number for each in shown.values() for number in _numbers(each)})
    return {"classes": {str(number): confusion.name_of(number) for number in numbers}, **shown}


def _composite(composite: CompositeConfusion) -> dict[str, Any]:
    confusion = composite.confusion
    classes = confusion.classes()
    whole = len(classes) <= MOST_CLASSES
    return {
        "intervals": composite.n_intervals,
        "scored": composite.n_scored,
        "samples": confusion.n_samples,
        "nClasses": len(classes),
        "matrix": classes.tolist() if whole else None,
        "pairs": _pairs(confusion, whole=whole),
        "rows": _rows(confusion),
    }


def _pairs(confusion: Confusion, *, whole: bool) -> list[list[int]]:
    """True class, predicted class, samples, and samples of the true class: of all pairs, or of the most confused ones."""
    of_class = np.zeros(int(confusion.truth.max(initial=0)) + 1, np.int64)
    np.add.at(of_class, confusion.truth, confusion.counts)
    wrong = np.flatnonzero(confusion.truth != confusion.predicted)
    worst = wrong[np.argsort(-confusion.counts[wrong], kind="stable")][:MOST_PAIRS]
    chosen = np.arange(len(confusion.counts)) if whole else worst
    truth = confusion.truth[chosen]
    columns = (truth, confusion.predicted[chosen], confusion.counts[chosen], of_class[truth])
    return [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def _rows(confusion: Confusion) -> list[list[int]]:
    """Class, its samples, how many of them are right, and how often it is predicted, for the classes with the most samples."""
    classes = confusion.classes()
    samples, right, predicted = (np.zeros(len(classes), np.int64) for _ in range(3))
    truth, guess = np.searchsorted(classes, confusion.truth), np.searchsorted(classes, confusion.predicted)
    np.add.at(samples, truth, confusion.counts)
    np.add.at(predicted, guess, confusion.counts)
    np.add.at(right, truth[truth == guess], confusion.counts[truth == guess])
    largest = np.sort(np.argsort(-samples, kind="stable")[:MOST_ROWS])
    return [[int(column[i]) for column in (classes, samples, right, predicted)] for i in largest]


def _numbers(composite: Mapping[str, Any]) -> set[int]:
    """Classes that a composite names."""
    pairs = {number for truth, predicted, *_ in composite["pairs"] for number in (truth, predicted)}
    return pairs | {row[0] for row in composite["rows"]} | set(composite["matrix"] or ())
