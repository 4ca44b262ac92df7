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
from modyn_dagster.selection import TrainingSet


def training_set_not_empty(row: TrainingSetRow) -> CheckResult:
    """A trigger with an empty training set is skipped; worth a look, but not an error."""
    text = row.details.get("skipped") or f"{row.n_samples} samples of a window of {row.n_pool}"
    return CheckResult("not_empty", row.n_samples > 0, False, text, {"samples": row.n_samples, "window": row.n_pool})


def only_train_samples(view: DatasetView, training_set: TrainingSet) -> CheckResult:
    """No calibrating or evaluating key was selected: every partition is looked at against the dataset's split."""
    leaked = {"calibrate": 0, "evaluate": 0}
    for partition in training_set.partitions():
        sides = view.sides(partition.keys)
        leaked["calibrate"] += int(np.count_nonzero(sides == CALIBRATE))
        leaked["evaluate"] += int(np.count_nonzero(sides == EVALUATE))
    total = sum(leaked.values())
    text = f"{total} keys of the calibrate or evaluate split are in the training set"
    return CheckResult("only_train_samples", total == 0, True, text, dict(leaked))


#: A sum in float32 weights of a window may be off by this share of it.
_ROUNDING: Final = 1e-5


def training_set_checks(row: TrainingSetRow, training_set: TrainingSet) -> list[CheckResult]:
    """``keys_once``: the recorded number of keys, each inside the window and none twice; ``weights_sum``: the weights are
    positive and add up to the window, whose samples they stand for; ``chances_sum``: so do the inverses of the chances with which
    samples were chosen, each between 0 and 1. Where a set does not tell its chances they are the inverses of its weights.

    Weights of ``1 / p`` add up to the window in expectation only: they may be off by four times the spread that independent
    draws would have. A group of which nothing was selected is represented by none, and missing from the sum: worth a look.
    """
    keys, weights, chances = _Keys(row), _Sum(), _Sum()
    has_chances = False
    for i, partition in enumerate(training_set.partitions()):
        keys.add(partition.keys.astype(np.int64))
        weights.add(partition.weights.astype(np.float64))
        told = training_set.chances(i)
        has_chances |= told is not None
        if told is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                chances.add(np.where((told > 0) & (told <= 1), 1 / told.astype(np.float64), np.nan))
    return [keys.judged(row), _weights_sum(row, weights), _chances_sum(row, chances if has_chances else None)]


def _weights_sum(row: TrainingSetRow, found: "_Sum") -> CheckResult:
    effective = found.effective
    text = f"weights add up to {found.total:.6g} for a window of {row.n_pool}; "
    text += f"the effective sample size is {effective:.6g} of {found.n}"
    counts = {"sum": found.total, "effective": effective, "impossible": found.n_impossible}
    return CheckResult("weights_sum", found.fits(row), False, text, counts)


def _chances_sum(row: TrainingSetRow, found: "_Sum | None") -> CheckResult:
    if found is None:
        text = "the set tells no chances: they are the inverses of its weights, or nobody knows them"
        return CheckResult("chances_sum", True, False, text)
    text = f"the inverses of the chances add up to {found.total:.6g} for a window of {row.n_pool}; "
    text += f"weighed by them the effective sample size would be {found.effective:.6g} of {found.n}"
    counts = {"sum": found.total, "effective": found.effective, "impossible": found.n_impossible}
    return CheckResult("chances_sum", found.fits(row), False, text, counts)


@dataclass
class _Keys:
    """Counts what is wrong with keys that should ascend inside a window."""

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

    def judged(self, row: TrainingSetRow) -> CheckResult:
        counts: dict[str, Any] = {"missing": row.n_samples - self.n, "repeated": self.n_repeated, "outside": self.n_outside}
        text = f"{counts['missing']} keys are missing, {self.n_repeated} repeated or out of order, "
        return CheckResult("keys_once", not any(counts.values()), True, f"{text}{self.n_outside} outside of the window", counts)


@dataclass
class _Sum:
    """Of weights that should add up to a window."""

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
        """Whether all are possible and their sum is the window, up to chance."""
        # A decaying sample hardly holds old items: only who drew it knows how far sums may be off.
        variance = max(0.0, self.squares - self.total, float(row.details.get("variance", 0.0)))
        spread = 4 * math.sqrt(variance) + _ROUNDING * row.n_pool
        return self.n_impossible == 0 and (self.n == 0 or abs(self.total - row.n_pool) <= spread)
