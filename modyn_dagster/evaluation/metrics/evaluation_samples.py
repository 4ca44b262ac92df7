"""What metrics need of every sample, worked out once for all intervals of one model.

An interval is a slice of rows. Counts are merged from running totals, which is exact; sums of floats are taken over the slice
itself, so a cell has the same bits whatever other intervals are judged with it.
"""

from functools import cached_property
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.metrics.calibration import confidences
from modyn_dagster.evaluation.metrics.losses import Float64, Odds, binary_odds, cross_entropy, over_columns

Outputs = npt.NDArray[np.float32]
#: Classes ``int64[n]`` or targets ``float64[n]``.
Truth = npt.NDArray[Any]
Counts = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]

#: Ranks of more samples times classes are not kept.
_MOST_RANKS: Final = 1 << 26
_ROWS: Final = 1 << 16


class EvaluationSamples:
    """Outputs ``float32[n, k]`` and truth of labelled samples, with what follows from them sample by sample."""

    def __init__(self, outputs: Outputs, truth: Truth) -> None:
        self.outputs, self.truth = outputs, truth
        self._right: dict[int, Counts] = {}
        self._rankings: dict[int, Ranking] = {}

    def __len__(self) -> int:
        return len(self.truth)

    @property
    def n_classes(self) -> int:
        """Classes the model knows."""
        return self.outputs.shape[1]

    @cached_property
    def predicted(self) -> Counts:
        """The class of the largest output, ``int64[n]``; the lower class wins a tie."""
        return np.asarray(self.outputs.argmax(axis=1)) if self.n_classes != 2 else self._predicted_one.astype(np.int64)

    @cached_property
    def _predicted_one(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.outputs[:, 1] > self.outputs[:, 0])

    @cached_property
    def broken(self) -> Counts:
        """How many of the samples before each place have outputs that are not finite, ``int64[n + 1]``."""
        return _running(~over_columns(np.logical_and, np.isfinite(self.outputs)))

    @cached_property
    def beyond(self) -> Counts:
        """How many of the samples before each place are of a class that the model does not know, ``int64[n + 1]``."""
        return _running(self.truth >= self.n_classes)

    @cached_property
    def odds(self) -> Odds:
        """Of two classes: what all their probabilities are made of."""
        with np.errstate(all="ignore"):
            return binary_odds(self.outputs)

    @cached_property
    def losses(self) -> Float64:
        """``-log p(class)``, ``float64[n]``; of no use for samples of an unknown class."""
        labels = self._known_labels
        with np.errstate(all="ignore"):
            return self.odds.losses(labels) if self.n_classes == 2 else cross_entropy(self.outputs, labels)

    @cached_property
    def confidence(self) -> Float64:
        """Probability of the predicted class, ``float64[n]``."""
        with np.errstate(all="ignore"):
            return self.odds.confidences() if self.n_classes == 2 else confidences(self.outputs)

    @cached_property
    def squares(self) -> Float64:
        """Squared distance of the probabilities from the truth, ``float64[n]``: over all classes, for two of class 1 alone."""
        labels = self._known_labels
        if self.n_classes == 2:
            with np.errstate(all="ignore"):
                return self.odds.squares(labels)
        found = np.empty(len(self))
        for start in range(0, len(self), _ROWS):
            rows = slice(start, start + _ROWS)
            found[rows] = _squares(self.outputs[rows], labels[rows])
        return found

    @property
    def _known_labels(self) -> Truth:
        """The truth; in place of a class that the model does not know the last one it knows."""
        return np.minimum(self.truth, self.n_classes - 1) if self.beyond[-1] else self.truth

    def right(self, k: int) -> Counts:
        """How many of the samples before each place have their class among the ``k`` largest outputs, ``int64[n + 1]``."""
        if k not in self._right:
            self._right[k] = _running(self._is_right if k == 1 else _within(self.outputs, self.truth, k))
        return self._right[k]

    @property
    def _is_right(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.predicted == self.truth)

    @cached_property
    def hits_of_one(self) -> Counts:
        """How many of the samples before each place are of class 1 and predicted as such, ``int64[n + 1]``."""
        return _running((self.predicted == 1) & (self.truth == 1))

    @cached_property
    def seen_of_one(self) -> Counts:
        """How often class 1 occurs among truth and predictions before each place, ``int64[n + 1]``."""
        return _running((self.predicted == 1).astype(np.int64) + (self.truth == 1))

    def ranks(self, positive: int, part: slice) -> Int32:
        """Places of the samples of a part in the order of a class's probability, ``int32``; equal places are ties."""
        if len(self) * self.n_classes > _MOST_RANKS:
            return _ranking(self.outputs[part], positive).ranks
        return self.ranking(positive).ranks[part]

    def ranking(self, positive: int) -> "Ranking":
        """All samples in the order of a class's probability."""
        if positive not in self._rankings:
            self._rankings[positive] = _ranking(self.outputs, positive)
        return self._rankings[positive]


class Ranking(NamedTuple):
    """Rows in ascending order, and the place of every row, ``int32[n]`` both; equal places are ties."""

    order: Int32
    ranks: Int32


def _running(flags: npt.NDArray[np.bool_] | Counts) -> Counts:
    """Totals before each place and behind the last one, ``int64[n + 1]``."""
    found = np.zeros(len(flags) + 1, np.int64)
    # Often nothing is amiss anywhere: memory that is never written costs nothing.
    if flags.any():
        np.cumsum(flags, out=found[1:])
    return found


def _within(outputs: Outputs, labels: Truth, k: int) -> npt.NDArray[np.bool_]:
    """As sorting would have it, the lower class before the higher one where outputs are equal."""
    known = labels < outputs.shape[1]
    place = np.minimum(labels, outputs.shape[1] - 1)[:, None]
    own = np.take_along_axis(outputs, place, axis=1)
    before = (outputs > own) | ((outputs == own) & (np.arange(outputs.shape[1]) < place))
    return np.asarray(known & (before.sum(axis=1) < k))


def _squares(outputs: Outputs, labels: Truth) -> Float64:
    with np.errstate(all="ignore"):
        powers = outputs.astype(np.float64)
        powers = np.exp(powers - over_columns(np.maximum, powers)[:, None])
        total = over_columns(np.add, powers)
        shares = powers / total[:, None]
        own = np.take_along_axis(shares, labels[:, None], axis=1)[:, 0]
        return np.asarray(np.square(shares).sum(axis=1) - np.square(own) + np.square(1 - own))


def _ranking(outputs: Outputs, positive: int) -> Ranking:
    with np.errstate(all="ignore"):
        odds = _log_odds(outputs, positive)
    order = np.argsort(odds)
    ordered = odds[order]
    ranks = np.empty(len(odds), np.int32)
    ranks[order] = np.concatenate([[0], np.cumsum(ordered[1:] != ordered[:-1])])[: len(odds)]
    return Ranking(order.astype(np.int32), ranks)


def _log_odds(outputs: Outputs, positive: int) -> Float64:
    """Orders samples as the probability of a class does, without its ties at 0 and 1.

    Rows that differ by a constant, or in the order of the other classes, are ties to the last bit.
    """
    logits = outputs.astype(np.float64)
    if outputs.shape[1] == 2:
        return np.asarray(logits[:, positive] - logits[:, 1 - positive])
    rest = np.sort(np.delete(logits, positive, axis=1), axis=1)
    top = rest[:, -1]
    others = np.log(np.exp(rest - top[:, None]).sum(axis=1))
    return np.asarray(logits[:, positive] - top - others)


class CellFailed(Exception):
    """A cell has no value because something is wrong, not because there is too little to judge by."""


def require_known(judged: EvaluationSamples, part: slice) -> None:
    """``CellFailed`` where a sample is of a class that has no probability."""
    if judged.beyond[part.stop] > judged.beyond[part.start]:
        _refuse(judged, part)


def _refuse(judged: EvaluationSamples, part: slice) -> NoReturn:
    largest = int(judged.truth[part].max())
    raise CellFailed(f"a sample is of class {largest}, the model knows {judged.n_classes} classes")
