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
from typing import Final, NamedTuple

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np

from benchmarks.promotion_power import error_table
from benchmarks.promotion_rates import Promotions
from benchmarks.promotion_runs import Drawing, SimulatedRun, of_differences, of_equal_scores
from benchmarks.promotion_streams import NULL_STREAMS, Float64, Stream, classifiers
from modyn_dagster.evaluation.promotion.gate import GateRules, look_at_batch
from modyn_dagster.evaluation.promotion.state import GateState
from modyn_dagster.spec.promotion.gate import PromotionSpec, TestName

_ALPHA: Final = 0.05
_SEED: Final = 20240
_TESTS: Final[tuple[TestName, ...]] = ("confidence_sequence", "mcnemar", "block_bootstrap")
#: Numbers of tests for the power, and differences of accuracies with the share of differing predictions.
_NUMBERS: Final = (1, 2, 3, 5, 10, 20, 50, 100)
_DIFFERENCES: Final = ((0.02, 0.1), (0.05, 0.1))
#: Batches after which a stream for the power ends.
_MOST_BATCHES: Final = 400


class GateStream(NamedTuple):
    """Tests of a simulated run on which a gate should not promote, the margin, and the kinds of test that it may have."""

    drawing: Drawing
    margin: float
    tests: Sequence[TestName]


def _gate_streams() -> Mapping[str, GateStream]:
    """Streams of differences of two classifiers, and of equally good scores.

    The other streams of differences have losses that no accuracy has. McNemar's test is for a margin of 0.
    """
    found = {
        name: GateStream(of_differences(stream), margin, _TESTS[: 2 if margin == 0 else 1])
        for name, (stream, margin) in NULL_STREAMS.items()
        if name != "skewed losses"
    }
    scored = {
        f"scores of equal ROC-AUC, autocorrelation {correlation:g}": GateStream(of_equal_scores(correlation), 0.0, _TESTS[2:])
        for correlation in (0.0, 0.9)
    }
    return found | scored


GATE_STREAMS: Final = _gate_streams()


def gate_promotions(
    drawing: Drawing, margin: float, *, runs: int, candidates: int, batches: int, size: int, test: TestName, seed: int
) -> Promotions:
    """Runs in which a gate ever promotes one of some candidates that are tested one after the other, each for some batches.

    A promotion is false where the true advantage on its pairs does not exceed the margin.
    """
    shadow = {"for": f"{batches}d", "max": 1}
    content = {"test": test, "margin": margin, "confidence": 1 - _ALPHA, "min_samples": 1, "shadow": shadow}
    rules = GateRules(PromotionSpec.model_validate(content), "roc_auc" if test == "block_bootstrap" else "accuracy")
    claimed = false = 0
    for number in range(runs):
        run = SimulatedRun(drawing, candidates=candidates, batches=batches, size=size, seed=[seed, number])
        state, n_claimed, n_false = GateState(), 0, 0
        for _ in range(candidates * batches + 1):
            before = state
            state, changes = look_at_batch(rules, state, run.batch, run.moved())
            for change in changes:
                tested = before.candidate(change.trigger)
                if change.state == "champion" and tested is not None and tested.trial is not None:
                    begun = tested.trial.begun
                    gain = run.test(change.trigger, begun).gain((run.batch - begun) * size)
                    n_claimed += 1
                    # A tolerance for the mean of rounded numbers.
                    n_false += gain <= margin + 1e-12
        if state.n_tests != candidates:
            raise AssertionError(f"{state.n_tests} of {candidates} candidates were tested")
        claimed, false = claimed + bool(n_claimed), false + bool(n_false)
    return Promotions(runs, claimed, false)


def batches_until_promoted(stream: Stream, number: int, *, streams: int, size: int, most: int, seed: int) -> Float64:
    """Batches until a better candidate is promoted in the test of a number, ``float64[streams]``; infinite after ``most``."""
    rules = GateRules(PromotionSpec.model_validate({"confidence": 1 - _ALPHA, "min_samples": 1}), "accuracy")
    found = []
    for each in range(streams):
        run = SimulatedRun(of_differences(stream), candidates=1, batches=most, size=size, seed=[seed, each])
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
    parser.add_argument("--test", choices=_TESTS, help="only this test; default: all that a stream may have")
    parser.add_argument("--seed", type=int, default=_SEED, help="of the draws")
    options = parser.parse_args()
    if options.power_streams:
        sys.stdout.write(power_table(options.power_streams, options.size) + "\n\n")
    rows: list[tuple[str, str, Promotions]] = []
    for name in options.stream or GATE_STREAMS:
        drawing, margin, tests = GATE_STREAMS[name]
        for test in tests:
            if options.test not in (None, test):
                continue
            given = {key: getattr(options, key) for key in ("runs", "candidates", "batches", "size", "seed")}
            rows.append((name, test, gate_promotions(drawing, margin, test=test, **given)))
            sys.stdout.write(error_table(rows[-1:]).splitlines()[-1] + "\n")
            sys.stdout.flush()
    sys.stdout.write("\n" + error_table(rows) + "\n")


if __name__ == "__main__":
    main()
