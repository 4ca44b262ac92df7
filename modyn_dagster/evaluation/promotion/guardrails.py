"""Guardrails of a promotion: other metrics, slices, size and latency of a candidate that has passed its test."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.metrics.evaluation_samples import Outputs
from modyn_dagster.evaluation.metrics.registry import score
from modyn_dagster.evaluation.promotion.evidence import Evidence, Pairs
from modyn_dagster.evaluation.promotion.state import Trial
from modyn_dagster.evaluation.promotion.trials import window_pairs
from modyn_dagster.spec.operation import bytes_of
from modyn_dagster.spec.promotion.gate import PromotionSpec
from modyn_dagster.spec.promotion.limits import MetricGuardrail
from modyn_dagster.spec.tasks.metrics import lower_is_better

_ALL: Final = "all samples"


def broken_guardrail(rules: PromotionSpec, candidate: int, trial: Trial, evidence: Evidence) -> str | None:
    """Say which guardrail a candidate breaks; None where it breaks none.

    Metrics are those of both models on the pairs of the present window. A metric that is undefined for both breaks nothing.
    """
    limits = rules.guardrails
    if limits.max_bytes is not None and (size := evidence.n_bytes(candidate)) > bytes_of(limits.max_bytes):
        return f"its weights take {size:,} bytes, more than guardrails.max_bytes {limits.max_bytes}"
    if limits.max_latency is not None:
        seconds = evidence.latency(candidate)
        if seconds is not None and seconds > limits.max_latency:
            return f"it took {seconds:.3g} s per 1,000 samples, more than guardrails.max_latency {limits.max_latency:g}"
    if not limits.metrics:
        return None
    pairs = window_pairs(candidate, trial, evidence)
    return broken_metric(limits.metrics, pairs, rules.min_samples)


def broken_metric(limits: Sequence[MetricGuardrail], pairs: Pairs, min_samples: int, other: str = "the champion") -> str | None:
    """Say which metric of the first model is worse than that of the second one by more than it may be; None for none.

    Args:
        limits: of the metrics.
        pairs: predictions of both.
        min_samples: values of a slice with fewer pairs are left out.
        other: name of the second one, for the sentence.
    """
    return next(filter(None, (_broken(limit, pairs, min_samples, other) for limit in limits)), None)


def _broken(rule: MetricGuardrail, pairs: Pairs, min_samples: int, other: str) -> str | None:
    for name, rows in _parts(rule, pairs, min_samples):
        ours, theirs = (_value(rule.metric, outputs, pairs, rows) for outputs in (pairs.candidate, pairs.incumbent))
        if theirs is None:
            continue
        if ours is None:
            return f"its {rule.metric} on {name} is undefined, that of {other} is {theirs:.6g}"
        drop = (ours - theirs) if lower_is_better(rule.metric) else (theirs - ours)
        if drop > rule.max_drop:
            worse = f"is {ours:.6g} against {theirs:.6g} of {other} on {name}"
            return f"its {rule.metric} {worse}, worse by more than max_drop {rule.max_drop:g}"
    return None


def _parts(rule: MetricGuardrail, pairs: Pairs, min_samples: int) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Rows of all pairs, or of each value of a slice that has enough of them."""
    if rule.slice is None:
        yield _ALL, np.arange(len(pairs))
        return
    values = pairs.slices[rule.slice]
    present = np.flatnonzero(values != None)  # noqa: E711 - of every element
    texts, groups = np.unique(values[present].astype(str), return_inverse=True)
    for number, text in enumerate(texts.tolist()):
        rows = present[groups == number]
        if len(rows) >= min_samples:
            yield f"{rule.slice}={text}", rows


def _value(metric: str, outputs: Outputs, pairs: Pairs, rows: npt.NDArray[np.int64]) -> float | None:
    return score(metric, outputs[rows], pairs.truth[rows]).value
