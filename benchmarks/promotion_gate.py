"""Error and power of whole promotion gates, on simulated streams whose true difference is known.

``python benchmarks/promotion_gate.py`` prints two tables in Markdown: the share of runs in which a gate ever promotes one of a
hundred candidates although it should not, with the upper end of its exact 95 % interval; and the batches until a candidate that
is truly better is promoted, by the number of its test. The gate is that of ``modyn_dagster.evaluation.promotion``; it looks at
every batch. ``--runs 20`` is a quick look.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np

from benchmarks.promotion_power import error_table
from benchmarks.promotion_streams import NULL_STREAMS, Float64, Pair, Promotions, Stream, classifiers
from modyn_dagster.evaluation.promotion.evidence import Outcomes, Pairs
from modyn_dagster.evaluation.promotion.gate import GateRules, look_at_batch
from modyn_dagster.evaluation.promotion.state import GateState
from modyn_dagster.keys import key_of
from modyn_dagster.spec.promotion.gate import PromotionSpec, TestName

_ALPHA: Final = 0.05
_SEED: Final = 20240
#: Tests of accuracies; the second one is for a margin of 0.
_TESTS: Final[tuple[TestName, ...]] = ("confidence_sequence", "mcnemar")
#: Stream time between two batches, microseconds: a day.
_DAY: Final = 86_400_000_000
#: Streams of differences of two classifiers; the others have losses that no accuracy has.
GATE_STREAMS: Final = {name: found for name, found in NULL_STREAMS.items() if name != "skewed losses"}
#: Numbers of tests for the power, and differences of accuracies with the share of differing predictions.
_NUMBERS: Final = (1, 2, 3, 5, 10, 20, 50, 100)
_DIFFERENCES: Final = ((0.02, 0.1), (0.05, 0.1))
#: Batches after which a stream for the power ends.
_MOST_BATCHES: Final = 400


class SimulatedRun:
    """Evidence of a run with a first model, and a candidate with every so many batches, as one object that moves on.

    The differences of a candidate and the champion are drawn when their test begins, whichever model is the champion.

    Args:
        stream: of differences.
        candidates: models after the first one.
        batches: between two models; after so many an undecided candidate is to be rejected.
        size: samples of a batch.
        seed: of the draws.
    """

    def __init__(self, stream: Stream, *, candidates: int, batches: int, size: int, seed: Sequence[int]) -> None:
        self.batch = -1
        self._stream, self._n, self._size, self._seed = stream, batches * size, size, seed
        born = [0, *(number * batches for number in range(candidates))]
        self._born = [(ordinal, batch) for ordinal, batch in enumerate(born)]
        self._models: dict[int, int] = {}
        self._pairs: dict[tuple[int, int], Pair] = {}

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

    def pair(self, candidate: int, begun: int) -> Pair:
        """Return all differences of a test."""
        if (candidate, begun) not in self._pairs:
            rng = np.random.default_rng([*self._seed, candidate, begun])
            self._pairs = {(candidate, begun): self._stream(rng, self._n)}
        return self._pairs[candidate, begun]

    def pairs(self, candidate: int, incumbent: int, after: int, begun: int, since: int) -> Pairs:
        """Predictions with the drawn differences: where the two are equal, both are right."""
        rows = slice((max(begun, since) - begun) * self._size, (self.batch - begun) * self._size)
        drawn = self.pair(candidate, begun).differences[rows]
        ours, theirs = (np.eye(2, dtype=np.float32)[(drawn == lost).astype(np.int64)] for lost in (-1, 1))
        return Pairs(np.zeros(len(drawn), np.int64), ours, theirs, {})

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


def gate_promotions(
    stream: Stream, margin: float, *, runs: int, candidates: int, batches: int, size: int, test: TestName, seed: int
) -> Promotions:
    """Runs in which a gate ever promotes one of some candidates that are tested one after the other, each for some batches.

    A promotion is false where the mean of the conditional expectations of its pairs does not exceed the margin.
    """
    shadow = {"for": f"{batches}d", "max": 1}
    content = {"test": test, "margin": margin, "confidence": 1 - _ALPHA, "min_samples": 1, "shadow": shadow}
    rules = GateRules(PromotionSpec.model_validate(content), "accuracy")
    claimed = false = 0
    for number in range(runs):
        run = SimulatedRun(stream, candidates=candidates, batches=batches, size=size, seed=[seed, number])
        state, n_claimed, n_false = GateState(), 0, 0
        for _ in range(candidates * batches + 1):
            before = state
            state, changes = look_at_batch(rules, state, run.batch, run.moved())
            for change in changes:
                tested = before.candidate(change.trigger)
                if change.state == "champion" and tested is not None and tested.trial is not None:
                    begun = tested.trial.begun
                    true_mean = np.mean(run.pair(change.trigger, begun).conditional[: (run.batch - begun) * size])
                    n_claimed += 1
                    # A tolerance for the mean of rounded numbers.
                    n_false += bool(true_mean <= margin + 1e-12)
        if state.n_tests != candidates:
            raise AssertionError(f"{state.n_tests} of {candidates} candidates were tested")
        claimed, false = claimed + bool(n_claimed), false + bool(n_false)
    return Promotions(runs, claimed, false)


def batches_until_promoted(stream: Stream, number: int, *, streams: int, size: int, most: int, seed: int) -> Float64:
    """Batches until a better candidate is promoted in the test of a number, ``float64[streams]``; infinite after ``most``."""
    rules = GateRules(PromotionSpec.model_validate({"confidence": 1 - _ALPHA, "min_samples": 1}), "accuracy")
    found = []
    for each in range(streams):
        run = SimulatedRun(stream, candidates=1, batches=most, size=size, seed=[seed, each])
        state = GateState(n_tests=number - 1)
        while state.champion != 1 and run.batch < most:
            state, _ = look_at_batch(rules, state, run.batch, run.moved())
        found.append(float(run.batch) if state.champion == 1 else np.inf)
    return np.array(found)


def power_table(streams: int, size: int) -> str:
    """Markdown of the batches needed, by number of the test."""
    heads = [f"{difference:g} of {differing:.0%}" for difference, differing in _DIFFERENCES]
    columns = "".join(f" {head}: half | 90 % |" for head in heads)
    lines = [f"| test | share of the error |{columns}", "|---:|---:|" + "---:|---:|" * len(heads)]
    for number in _NUMBERS:
        row = [str(number), f"1/{number * (number + 1):,}"]
        for difference, differing in _DIFFERENCES:
            better = classifiers(difference, differing)
            found = batches_until_promoted(better, number, streams=streams, size=size, most=_MOST_BATCHES, seed=_SEED)
            row += [f"{np.quantile(found, q, method='higher'):.0f}" for q in (0.5, 0.9)]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200, help="runs of a gate on each kind of stream")
    parser.add_argument("--candidates", type=int, default=100, help="candidates of a run, one after the other")
    parser.add_argument("--batches", type=int, default=4, help="batches, and so looks, of each candidate")
    parser.add_argument("--size", type=int, default=100, help="samples of a batch")
    parser.add_argument("--power-streams", type=int, default=100, help="streams for each number of batches; 0: no table")
    parser.add_argument("--stream", action="append", choices=list(GATE_STREAMS), help="only runs on this kind of stream")
    parser.add_argument("--test", choices=_TESTS, help="only this test; default: both, McNemar's where the margin is 0")
    options = parser.parse_args()
    if options.power_streams:
        sys.stdout.write(power_table(options.power_streams, options.size) + "\n\n")
    rows: list[tuple[str, str, Promotions]] = []
    for name in options.stream or GATE_STREAMS:
        stream, margin = GATE_STREAMS[name]
        for test in _TESTS if margin == 0 else _TESTS[:1]:
            if options.test not in (None, test):
                continue
            given = {key: getattr(options, key) for key in ("runs", "candidates", "batches", "size")}
            rows.append((name, test, gate_promotions(stream, margin, test=test, seed=_SEED, **given)))
            sys.stdout.write(error_table(rows[-1:]).splitlines()[-1] + "\n")
            sys.stdout.flush()
    sys.stdout.write("\n" + error_table(rows) + "\n")


if __name__ == "__main__":
    main()
