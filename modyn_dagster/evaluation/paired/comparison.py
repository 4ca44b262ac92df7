"""Comparison of two models on the same samples by one of the paired tests, from arrays alone."""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.metrics.evaluation_samples import Outputs, Truth
from modyn_dagster.evaluation.metrics.registry import check_metrics, task_of_metric
from modyn_dagster.evaluation.paired.block_bootstrap import bootstrap_verdict
from modyn_dagster.evaluation.paired.bounded_losses import paired_differences
from modyn_dagster.evaluation.paired.confidence_sequence import BoundsPath, DifferenceState, bounds_path, confidence_verdict
from modyn_dagster.evaluation.paired.mcnemar import DiscordantState, mcnemar_verdict
from modyn_dagster.evaluation.paired.verdict import PairedVerdict
from modyn_dagster.spec.promotion.gate import TESTS, TestName, untested
from modyn_dagster.spec.tasks.task import TaskName
from modyn_dagster.spec.training import TaskKind

_SOURCE: Final = "paired test"


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Settings of a test.

    Attributes:
        metric: decides; a mean of losses for ``confidence_sequence``, ``accuracy`` for ``mcnemar``, any other one for
            ``block_bootstrap``.
        test: one of ``TESTS``.
        margin: difference that the candidate has to exceed, in the unit of the metric.
        confidence: 1 less the error probability of ``better``, and of ``worse or equal``.
        min_samples: with fewer samples the verdict is open.
        look: number of this look, from 1 on; each costs the tests other than ``confidence_sequence`` a part of the error
            probability.
        bound: largest loss of a sample that counts, where the metric has none of its own.
        block: mean length of the blocks of ``block_bootstrap``; None: the cube root of the number of samples.
        seed: of the draws of ``block_bootstrap``.

    Raises:
        ConfigError: a setting is out of range, or does not go with the test.
    """

    metric: str
    test: TestName = "confidence_sequence"
    margin: float = 0.0
    confidence: float = 0.95
    min_samples: int = 1
    look: int = 1
    bound: float | None = None
    block: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1:
            raise ConfigError(_SOURCE, "confidence", self.confidence, "must lie between 0 and 1")
        if not math.isfinite(self.margin):
            raise ConfigError(_SOURCE, "margin", self.margin, "must be a finite number")
        if self.test not in TESTS:
            raise ConfigError(_SOURCE, "test", self.test, f"must be one of {', '.join(TESTS)}")
        if (problem := untested(self.metric)) is not None:
            raise ConfigError(_SOURCE, "metric", self.metric, problem)
        if self.test == "mcnemar" and self.metric != "accuracy":
            raise ConfigError(_SOURCE, "metric", self.metric, "mcnemar tests the accuracy alone; use another test")
        if self.bound is not None and self.test != "confidence_sequence":
            raise ConfigError(_SOURCE, "bound", self.bound, "only confidence_sequence bounds losses; leave it out")
        if self.block is not None and self.test != "block_bootstrap":
            raise ConfigError(_SOURCE, "block", self.block, "only block_bootstrap has blocks; leave it out")
        if self.look != 1 and self.test == "confidence_sequence":
            raise ConfigError(_SOURCE, "look", self.look, "confidence_sequence holds at every look; leave it out")


class PairedResult(NamedTuple):
    """Verdict of a test, and the bounds along the stream, which ``confidence_sequence`` alone has."""

    verdict: PairedVerdict
    path: BoundsPath | None


def compare_outputs(
    test: PairedTest, candidate: Outputs, incumbent: Outputs, truth: Truth, *, task: TaskName | None = None
) -> PairedResult:
    """Test a candidate against an incumbent on labelled samples, or on any where models learn without labels.

    Args:
        test: settings.
        candidate, incumbent: outputs ``float32[n, k]`` for the same samples in stream order.
        truth: classes ``int64[n]`` from 0 on, or finite targets ``float64[n]``.
        task: of the models; default: the one of the metric among those that learn this truth.

    Raises:
        ConfigError: the metric is for another task, or for another test.

    >>> import numpy as np
    >>> right, wrong = np.float32([[1, 0]] * 60), np.float32([[0, 1]] * 60)
    >>> compare_outputs(PairedTest("accuracy"), right, wrong, np.zeros(60, np.int64)).verdict.result
    'better'
    """
    kind: TaskKind = "target" if truth.dtype.kind == "f" else "class"
    check_metrics([test.metric], task or task_of_metric(test.metric, kind), source=_SOURCE)
    alpha = 1 - test.confidence
    if test.test == "block_bootstrap":
        verdict = bootstrap_verdict(
            test.metric,
            candidate,
            incumbent,
            truth,
            alpha=alpha,
            margin=test.margin,
            look=test.look,
            min_samples=test.min_samples,
            block=test.block,
            seed=test.seed,
        )
        return PairedResult(verdict, None)
    differences = paired_differences(test.metric, candidate, incumbent, truth, bound=test.bound)
    if test.test == "mcnemar":
        counts = DiscordantState(looks=test.look - 1).updated(differences.values)
        verdict, _ = mcnemar_verdict(counts, alpha=alpha, margin=test.margin, min_samples=test.min_samples)
        return PairedResult(verdict, None)
    state, unit = DifferenceState().updated(differences.values), differences.unit
    verdict = confidence_verdict(state, alpha=alpha, margin=test.margin, unit=unit, min_samples=test.min_samples)
    return PairedResult(verdict, bounds_path(differences.values, alpha=alpha, unit=unit))
