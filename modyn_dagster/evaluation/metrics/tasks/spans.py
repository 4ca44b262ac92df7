"""Metrics of spans that tags of tokens name: one kernel each. They read counts of spans, which are measures of a text."""

import numpy as np

from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples, UndefinedScore
from modyn_dagster.evaluation.metrics.groups import Groups, measure_sums, quotients
from modyn_dagster.evaluation.metrics.losses import Float64

#: Columns of the measures: spans that are right, predicted and true.
_RIGHT, _PREDICTED, _TRUE = 3, 4, 5


def span_f1(groups: Groups) -> Float64:
    """Harmonic mean of precision and recall of spans, over all texts.

    Args:
        groups: slices or resamples of measures ``[cross-entropies, tokens right, tokens, spans right, predicted, true]``.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> span_f1(Slices.whole([[0, 0, 0, 1, 1, 2], [0, 0, 0, 1, 1, 0]], [0.0, 0.0]))
    array([1.])
    """
    spans = measure_sums(groups, _PREDICTED) + measure_sums(groups, _TRUE)
    return quotients(2 * measure_sums(groups, _RIGHT), spans, of_none=np.nan)


def span_precision(groups: Groups) -> Float64:
    """Share of the predicted spans that are right, with the same tokens and kind.

    Args:
        groups: as of ``span_f1``.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> span_precision(Slices.whole([[0, 0, 0, 1, 2, 4]], [0.0]))
    array([0.5])
    """
    return quotients(measure_sums(groups, _RIGHT), measure_sums(groups, _PREDICTED), of_none=np.nan)


def span_recall(groups: Groups) -> Float64:
    """Share of the true spans that are predicted, with the same tokens and kind.

    Args:
        groups: as of ``span_f1``.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> span_recall(Slices.whole([[0, 0, 0, 1, 2, 4]], [0.0]))
    array([0.25])
    """
    return quotients(measure_sums(groups, _RIGHT), measure_sums(groups, _TRUE), of_none=np.nan)


def check_spans(samples: EvaluationSamples, part: slice) -> None:
    """Raise ``UndefinedScore`` where no span is predicted or true."""
    _require(samples, part, (_PREDICTED, _TRUE), "predicted or true")


def check_predicted_spans(samples: EvaluationSamples, part: slice) -> None:
    """Raise ``UndefinedScore`` where no span is predicted."""
    _require(samples, part, (_PREDICTED,), "predicted")


def check_true_spans(samples: EvaluationSamples, part: slice) -> None:
    """Raise ``UndefinedScore`` where no span is true."""
    _require(samples, part, (_TRUE,), "true")


def _require(samples: EvaluationSamples, part: slice, columns: tuple[int, ...], what: str) -> None:
    if not samples.outputs[part, columns].any():
        raise UndefinedScore(f"no span of these samples is {what}")
