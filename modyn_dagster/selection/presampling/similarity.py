"""Ranking of candidates by the similarity of their embeddings to samples without a label, in bounded memory."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray
from modyn_dagster.reproducibility.randomness import hash_keys
from modyn_dagster.selection.quotas import Int64Array

Directions = npt.NDArray[np.float64]
Choice = Literal["proportional", "nearest"]

#: Unit of the coordinates of directions. Products of two coordinates are multiples of its square, and all partial sums of a
#: cosine stay below 2**53 of these, so float64 holds each of them exactly, in whatever order they are added.
_UNIT: Final = 2.0**-25
#: Least weight of a candidate that is drawn in proportion to its cosine, which may be negative.
_LEAST_WEIGHT: Final = 2.0**-25
#: Rows of a matrix product.
_ROWS: Final = 64


def directions(embeddings: npt.ArrayLike) -> Directions:
    """Scale embeddings, ``[n, d]``, to length 1 and round their coordinates to multiples of 2**-25, ``float64[n, d]``.

    Cosines of rounded directions are exact, so they depend neither on the shape of a matrix product nor on threads. An
    embedding of zeros, or with a value that is not finite, has no direction: its row is zero, and so are its cosines.
    """
    values = np.ascontiguousarray(embeddings, dtype=np.float64)
    values = np.where(np.isfinite(values).all(axis=1, keepdims=True), values, 0.0)
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    units = np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0)
    rounded: Directions = np.rint(units / _UNIT) * _UNIT
    return rounded


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples to compare.

    Attributes:
        keys: ``uint64[n]``.
        classes: true classes of candidates, predicted classes of samples without a label, ``int64[n]``; -1 for none.
        directions: of their embeddings, ``float64[n, d]``.
    """

    keys: KeyArray
    classes: Int64Array
    directions: Directions


#: Starts a pass over the candidates, in key order and in chunks of any size.
CandidatePass = Callable[[], Iterable[Samples]]


class Ranking:
    """The best candidates of each unlabelled sample among those of its predicted class, the best first.

    Args:
        unlabelled: samples to compare with, ``m`` of them.
        depth: candidates held for each; memory is about 16 bytes times ``m * depth``.
        choice: rank by cosine, or draw in proportion to it without replacement. The race of exponential clocks gives each pair
            of samples a score ``log(u) / cosine``, with u uniform by the two keys and ``salt``.
        salt: of the random numbers.

    Ties go to the smaller key. Reference of the race: Efraimidis, Spirakis, "Weighted random sampling with a reservoir",
    Information Processing Letters 97, 2006.
    """

    def __init__(self, unlabelled: Samples, depth: int, choice: Choice, salt: int) -> None:
        m = len(unlabelled.keys)
        self._unlabelled, self._depth, self._choice = unlabelled, depth, choice
        self._salts = hash_keys(unlabelled.keys, salt).tolist()
        self._keys = [np.empty(0, np.uint64)] * m
        self._scores = [np.empty(0)] * m
        self._next = [0] * m

    def read(self, candidates: CandidatePass, taken: KeyArray) -> None:
        """Rank all candidates but those already taken."""
        classes = self._unlabelled.classes
        for chunk in candidates():
            free = ~np.isin(chunk.keys, taken)
            for label in np.unique(classes).tolist():
                among = np.flatnonzero(free & (chunk.classes == label))
                rows = np.flatnonzero(classes == label) if len(among) else among
                for start in range(0, len(rows), _ROWS):
                    self._compare(rows[start : start + _ROWS], chunk.keys[among], chunk.directions[among])

    def best(self, place: int, taken: set[int]) -> int | None:
        """Return the best candidate that is not taken, by the place of the unlabelled sample; None if no more is held."""
        keys = self._keys[place]
        while self._next[place] < len(keys):
            key = int(keys[self._next[place]])
            if key not in taken:
                return key
            self._next[place] += 1
        return None

    def is_complete(self, place: int) -> bool:
        """Test if all candidates of an unlabelled sample are held, so that a further pass finds no other."""
        return len(self._keys[place]) < self._depth

    def _compare(self, rows: Int64Array, keys: KeyArray, units: Directions) -> None:
        cosines = self._unlabelled.directions[rows] @ units.T
        for place, cosine in zip(rows.tolist(), cosines, strict=True):
            scores = cosine if self._choice == "nearest" else _race(cosine, keys, self._salts[place])
            if len(self._keys[place]) == self._depth:
                # Later keys lose ties.
                ahead = scores > self._scores[place][-1]
                self._merge(place, keys[ahead], scores[ahead])
            else:
                self._merge(place, keys, scores)

    def _merge(self, place: int, keys: KeyArray, scores: Directions) -> None:
        if not len(keys):
            return
        scores, keys = np.concatenate([self._scores[place], scores]), np.concatenate([self._keys[place], keys])
        order = np.argsort(-scores, kind="stable")[: self._depth]
        self._scores[place], self._keys[place] = scores[order], keys[order]


def _race(cosines: Directions, keys: KeyArray, salt: int) -> Directions:
    # Of 53 random bits, moved off zero.
    uniform = (np.right_shift(hash_keys(keys, salt), np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    scores: Directions = np.log(uniform) / np.maximum(cosines, _LEAST_WEIGHT)
    return scores
