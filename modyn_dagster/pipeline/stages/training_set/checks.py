"""Checks of a training set before training: its keys, its side of the split, its weights and inclusion probabilities."""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.catalog.results.training_sets import TrainingSetRow
from modyn_dagster.data.split import CALIBRATE, EVALUATE
from modyn_dagster.data.view import DatasetView
from modyn_dagster.pipeline.checks import CheckResult
from modyn_dagster.pipeline.stages.training_set.own_selection import is_certified
from modyn_dagster.selection import TrainingSet


def training_set_not_empty(row: TrainingSetRow) -> CheckResult:
    """Check that a training set is not empty; an empty one skips its trigger, which is a warning and no error."""
    text = row.details.get("skipped") or f"{row.n_samples} samples of a window of {row.n_pool}"
    return CheckResult("not_empty", row.n_samples > 0, False, text, {"samples": row.n_samples, "window": row.n_pool})


def only_train_samples(view: DatasetView, training_set: TrainingSet) -> CheckResult:
    """Check in every partition that no key of the calibrate or evaluate side of the split was selected."""
    leaked = {"calibrate": 0, "evaluate": 0}
    for partition in training_set.partitions():
        sides = view.sides(partition.keys)
        leaked["calibrate"] += int(np.count_nonzero(sides == CALIBRATE))
        leaked["evaluate"] += int(np.count_nonzero(sides == EVALUATE))
    total = sum(leaked.values())
    text = f"{total} keys of the calibrate or evaluate split are in the training set"
    return CheckResult("only_train_samples", total == 0, True, text, dict(leaked))


#: Relative rounding error of a sum of float32 weights.
_ROUNDING: Final = 1e-5


def training_set_checks(row: TrainingSetRow, training_set: TrainingSet) -> list[CheckResult]:
    """Check keys, weights and inclusion probabilities of a training set.

    ``keys_once`` checks the recorded number of keys, each inside the window and none twice. ``weights_sum`` checks that weights
    are positive and add up to the size of the window. ``chances_sum`` checks the same of the inverse inclusion probabilities,
    each between 0 and 1; a set without recorded probabilities passes, because they are the inverses of its weights.

    Weights of ``1 / p`` add up to the window in expectation only: they may be off by four times the spread of independent
    draws. A group without any selected sample is missing from the sum, which is worth a look.

    An uncertified set, whose strategy of the user's own tells no inclusion probabilities, passes both where its weights are
    positive: its weights may mean anything, and nobody can tell if they fit.
    """
    keys, weights, inverses = _Keys(row), _WeightSum(), _WeightSum()
    has_probabilities = False
    for i, partition in enumerate(training_set.partitions()):
        keys.add(partition.keys.astype(np.int64))
        weights.add(partition.weights.astype(np.float64))
        probabilities = training_set.chances(i)
        if probabilities is not None:
            has_probabilities = True
            possible = (probabilities > 0) & (probabilities <= 1)
            with np.errstate(divide="ignore", invalid="ignore"):
                inverses.add(np.where(possible, 1 / probabilities.astype(np.float64), np.nan))
    return [keys.check(row), _weights_sum(row, weights), _chances_sum(row, inverses if has_probabilities else None)]


def _weights_sum(row: TrainingSetRow, weights: "_WeightSum") -> CheckResult:
    effective = weights.effective
    text = f"weights add up to {weights.total:.6g} for a window of {row.n_pool}; "
    text += f"the effective sample size is {effective:.6g} of {weights.n}"
    counts: dict[str, Any] = {"sum": weights.total, "effective": effective, "impossible": weights.n_impossible}
    if not is_certified(row):
        text += "; uncertified, because the strategy tells no inclusion probabilities"
        return CheckResult("weights_sum", weights.n_impossible == 0, False, text, counts | {"certified": False})
    return CheckResult("weights_sum", weights.fits(row), False, text, counts)


def _chances_sum(row: TrainingSetRow, inverses: "_WeightSum | None") -> CheckResult:
    if not is_certified(row):
        return CheckResult("chances_sum", True, False, "uncertified: the strategy tells no inclusion probabilities")
    if inverses is None:
        text = "the set records no inclusion probabilities: they are the inverses of its weights, or unknown"
        return CheckResult("chances_sum", True, False, text)
    text = f"the inverse inclusion probabilities add up to {inverses.total:.6g} for a window of {row.n_pool}; "
    text += f"weighed by them the effective sample size would be {inverses.effective:.6g} of {inverses.n}"
    counts = {"sum": inverses.total, "effective": inverses.effective, "impossible": inverses.n_impossible}
    return CheckResult("chances_sum", inverses.fits(row), False, text, counts)


@dataclass
class _Keys:
    """Counts of missing, repeated and outside keys, which should ascend inside a window."""

    row: TrainingSetRow
    n: int = 0
    n_repeated: int = 0
    n_outside: int = 0

    def __post_init__(self) -> None:
        self._last = self.row.after

    def add(self, keys: npt.NDArray[np.int64]) -> None:
        self.n += len(keys)
        self.n_repeated += int(np.count_nonzero(np.diff(keys, prepend=self._last) <= 0))
        self.n_outside += int(np.count_nonzero((keys <= self.row.after) | (keys > self.row.until)))
        self._last = int(keys[-1]) if len(keys) else self._last

    def check(self, row: TrainingSetRow) -> CheckResult:
        counts: dict[str, Any] = {"missing": row.n_samples - self.n, "repeated": self.n_repeated, "outside": self.n_outside}
        text = f"{counts['missing']} keys are missing, {self.n_repeated} repeated or out of order, "
        return CheckResult("keys_once", not any(counts.values()), True, f"{text}{self.n_outside} outside of the window", counts)


@dataclass
class _WeightSum:
    """Sum of weights that should add up to the size of a window."""

    n: int = 0
    n_impossible: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, weights: npt.NDArray[np.float64]) -> None:
        self.n += len(weights)
        self.n_impossible += int(np.count_nonzero(~(np.isfinite(weights) & (weights > 0))))
        self.total += float(weights.sum())
        self.squares += float(weights @ weights)

    @property
    def effective(self) -> float:
        """Kish's effective sample size."""
        return self.total**2 / self.squares if self.squares else 0.0

    def fits(self, row: TrainingSetRow) -> bool:
        """Compare the sum with the window, up to random deviation; impossible weights never fit."""
        # A decaying sample holds few old items, so its strategy records the variance of the sum.
        variance = max(0.0, self.squares - self.total, float(row.details.get("variance", 0.0)))
        spread = 4 * math.sqrt(variance) + _ROUNDING * row.n_pool
        return self.n_impossible == 0 and (self.n == 0 or abs(self.total - row.n_pool) <= spread)
