"""The three models of the paper, each trained on a sample and evaluated on the next batch before it enters the sample."""

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt

from benchmarks.tbs_reference import ReferenceRTBS
from benchmarks.tbs_streams import Array, Items
from modyn_dagster.selection.time_biased import Sampler

#: Features and targets of the sample, then of the batch; gives the batch's mean error.
Learner = Callable[[Array, Array, Array, Array], float]
#: Who wins where neighbours disagree: the paper does not say.
Tie = Literal["nearest", "lowest", "most"]


def nearest_neighbours(x: Array, y: Array, batch_x: Array, batch_y: Array, k: int = 7, tie: Tie = "most") -> float:
    """Percent misclassified by the majority of the ``k`` nearest."""
    labels = nearest_labels(x, y, batch_x, k)
    return 100 * float(np.mean(majority(labels, np.bincount(y.astype(np.int64)), tie) != batch_y))


def nearest_labels(x: Array, y: Array, batch_x: Array, k: int) -> Array:
    """Classes of the ``k`` nearest of every item, the nearest first: ``float64[len(batch_x), k]``."""
    distances = (x**2).sum(axis=1) - 2 * batch_x @ x.T
    nearest = np.argpartition(distances, k, axis=1)[:, :k]
    order = np.argsort(np.take_along_axis(distances, nearest, axis=1), axis=1)
    return np.asarray(y[np.take_along_axis(nearest, order, axis=1)])


def majority(labels: Array, counts: npt.NDArray[np.int64], tie: Tie) -> Array:
    """The most frequent of each row; of equally frequent ones the nearest, the lowest class, or the one with most items."""
    votes = (labels[:, :, None] == labels[:, None, :]).sum(axis=2).astype(float)
    if tie == "lowest":
        votes -= labels / (labels.max(initial=0) + 1)
    elif tie == "most":
        votes += counts[labels.astype(np.int64)] / (counts.max(initial=0) + 1)
    return np.asarray(labels[np.arange(len(labels)), votes.argmax(axis=1)])


def least_squares(x: Array, y: Array, batch_x: Array, batch_y: Array) -> float:
    """Mean squared error of the regression through the origin."""
    slopes = np.linalg.lstsq(x, y, rcond=None)[0]
    return float(np.mean((batch_x @ slopes - batch_y) ** 2))


def naive_bayes(x: Array, y: Array, batch_x: Array, batch_y: Array) -> float:
    """Percent misclassified by Bernoulli naive Bayes with Laplace smoothing; without a sample all count as uninteresting."""
    scores = np.zeros((2, len(batch_x)))
    for label in (0, 1):
        mine = x[y == label]
        if len(mine):
            p = (mine.sum(axis=0) + 1) / (len(mine) + 2)
            scores[label] = np.log(len(mine)) + batch_x @ np.log(p) + (1 - batch_x) @ np.log(1 - p)
        else:
            scores[label] = -np.inf if len(x) else -label
    return 100 * float(np.mean(scores.argmax(axis=0) != batch_y))


def errors(items: Items, samplers: Mapping[str, Sampler | ReferenceRTBS], learner: Learner) -> dict[str, npt.NDArray[np.float64]]:
    """The error of every sampler's model on each batch after the warm-up."""
    found: dict[str, list[float]] = {name: [] for name in samplers}
    for number, (start, end) in enumerate(zip(np.append(0, items.ends[:-1]), items.ends, strict=True)):
        for name, sampler in samplers.items():
            if number >= items.warm_up:
                kept = sampler.sample().astype(np.int64)
                x, y = items.features[kept], items.targets[kept]
                error = learner(x, y, items.features[start:end], items.targets[start:end]) if end > start else np.nan
                found[name].append(error)
            sampler.update(np.arange(start, end, dtype=np.uint64))
    return {name: np.array(values) for name, values in found.items()}


def expected_shortfall(values: npt.NDArray[np.float64], share: float) -> float:
    """The mean of the worst ``share`` of the values."""
    worst = np.sort(values[~np.isnan(values)])[::-1]
    return float(worst[: max(1, round(share * len(worst)))].mean())
