"""Simulated runs of a promotion gate: models that appear with time, and tests whose samples are drawn with a known truth."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from benchmarks.promotion_streams import EqualScores, Pair, Stream, equal_scores
from modyn_dagster.evaluation.promotion.evidence import Outcomes, Pairs
from modyn_dagster.keys import key_of

#: Stream time between two batches, microseconds: a day.
_DAY: Final = 86_400_000_000


class DrawnTest(Protocol):
    """Samples of one test of a simulated run, drawn as a whole when it begins."""

    def pairs(self, rows: slice) -> Pairs:
        """Predictions for some of them."""
        ...

    def gain(self, n: int) -> float:
        """True mean advantage of the candidate over the first n."""
        ...


Drawing = Callable[[np.random.Generator, int], DrawnTest]


@dataclass(frozen=True, slots=True)
class DrawnDifferences:
    """Test of two classifiers: where their difference is 0, both are right."""

    pair: Pair

    def pairs(self, rows: slice) -> Pairs:
        """Predictions with the drawn differences."""
        drawn = self.pair.differences[rows]
        ours, theirs = (np.eye(2, dtype=np.float32)[(drawn == lost).astype(np.int64)] for lost in (-1, 1))
        return Pairs(np.zeros(len(drawn), np.int64), ours, theirs, {})

    def gain(self, n: int) -> float:
        """Mean of the conditional expectations."""
        return float(np.mean(self.pair.conditional[:n]))


@dataclass(frozen=True, slots=True)
class DrawnScores:
    """Test of two models whose scores are equally good."""

    scores: EqualScores

    def pairs(self, rows: slice) -> Pairs:
        """Predictions with the drawn scores."""
        return Pairs(self.scores.truth[rows], self.scores.ours[rows], self.scores.theirs[rows], {})

    def gain(self, n: int) -> float:
        """Nothing."""
        return 0.0


def of_differences(stream: Stream) -> Drawing:
    """Draw tests from a stream of differences."""
    return lambda rng, n: DrawnDifferences(stream(rng, n))


def of_equal_scores(correlation: float) -> Drawing:
    """Draw tests of models whose scores are equally good, with an autocorrelation."""
    return lambda rng, n: DrawnScores(equal_scores(rng, n, correlation))


class SimulatedRun:
    """Evidence of a run with a first model, and a candidate with every so many batches, as one object that moves on.

    The samples of a candidate's test are drawn when it begins, whichever model is the champion.

    Args:
        drawing: of a test.
        candidates: models after the first one.
        batches: between two models; after so many an undecided candidate is to be rejected.
        size: samples of a batch.
        seed: of the draws.
    """

    def __init__(self, drawing: Drawing, *, candidates: int, batches: int, size: int, seed: Sequence[int]) -> None:
        self.batch = -1
        self._drawing, self._n, self._size, self._seed = drawing, batches * size, size, seed
        born = [0, *(number * batches for number in range(candidates))]
        self._born = [(ordinal, batch) for ordinal, batch in enumerate(born)]
        self._models: dict[int, int] = {}
        self._tests: dict[tuple[int, int], DrawnTest] = {}

    def moved(self) -> "SimulatedRun":
        """Move on by a batch."""
        self.batch += 1
        while self._born and self._born[0][1] <= self.batch:
            ordinal, batch = self._born.pop(0)
            self._models[ordinal] = key_of(batch, self._size - 1)
        return self

    @property
    def last_key(self) -> int:
        """Last key of the batch."""
        return key_of(self.batch, self._size - 1)

    @property
    def time(self) -> int:
        """Day of the batch, microseconds."""
        return self.batch * _DAY

    def models(self) -> Mapping[int, int]:
        """Models so far."""
        return self._models

    def test(self, candidate: int, begun: int) -> DrawnTest:
        """Return all samples of a test."""
        if (candidate, begun) not in self._tests:
            rng = np.random.default_rng([*self._seed, candidate, begun])
            self._tests = {(candidate, begun): self._drawing(rng, self._n)}
        return self._tests[candidate, begun]

    def pairs(self, candidate: int, incumbent: int, after: int, begun: int, since: int) -> Pairs:
        """Predictions of the batches since one."""
        first, end = (max(begun, since) - begun) * self._size, (self.batch - begun) * self._size
        return self.test(candidate, begun).pairs(slice(first, end))

    def coverage(self, candidate: int, after: int) -> float:
        """All labels are known."""
        return 1.0

    def outcomes(self, model: int, begin: int, end: int) -> Outcomes | None:
        """Nothing watches the champion."""
        return None

    def n_bytes(self, model: int) -> int:
        """No guardrail asks for it."""
        return 0

    def latency(self, model: int) -> float | None:
        """No guardrail asks for it."""
        return None

    def load_problem(self, model: int) -> str | None:
        """All models can be loaded."""
        return None
