"""Metrics that look at the order of the samples: holistic, so exact on every slice, from ranks worked out once."""

from collections.abc import Callable

import numpy as np

from modyn_dagster.evaluation.metrics.evaluation_samples import Counts, EvaluationSamples, require_known


def roc_auc(judged: EvaluationSamples, part: slice, positive: int | None = None) -> float | str:
    """Of class 1 against 0; for more classes the mean over those that occur of each against the rest."""
    return _over_classes(_roc_area, judged, part, positive)


def pr_auc(judged: EvaluationSamples, part: slice, positive: int | None = None) -> float | str:
    """Average precision: the sum over thresholds of precision times gain in recall. Classes as in ``roc_auc``."""
    return _over_classes(_average_precision, judged, part, positive)


def _over_classes(
    area: Callable[[Counts, Counts], float], judged: EvaluationSamples, part: slice, positive: int | None
) -> float | str:
    present = np.bincount(judged.truth[part])
    classes = np.flatnonzero(present)
    if len(classes) < 2:
        return f"all samples are of class {classes[0]}"
    require_known(judged, part)
    if positive is not None and positive not in classes:
        return f"no sample is of class {positive}"
    if positive is None and judged.n_classes == 2:
        positive = 1
    chosen = classes if positive is None else [positive]
    return float(np.mean([area(*_by_threshold(judged, int(c), part)) for c in chosen]))


def _by_threshold(judged: EvaluationSamples, positive: int, part: slice) -> tuple[Counts, Counts]:
    """Samples of the class and all samples at every distinct rank of the slice, ascending."""
    codes = judged.ranks(positive, part).astype(np.int64) * 2 + (judged.truth[part] == positive)
    codes.sort()
    ends = np.append(np.flatnonzero(np.diff(codes >> 1)) + 1, len(codes))
    found = np.cumsum(codes & 1)[ends - 1]
    return np.diff(found, prepend=0), np.diff(ends, prepend=0)


def _roc_area(positives: Counts, samples: Counts) -> float:
    """Probability that a positive sample ranks above a negative one, ties counting half (Mann, Whitney 1947)."""
    negatives = samples - positives
    below = np.cumsum(negatives) - negatives
    n_positive, n_negative = int(positives.sum()), int(negatives.sum())
    # Whole numbers up to the division: no order of the samples changes a bit.
    return int((positives * (2 * below + negatives)).sum()) / (2 * n_positive * n_negative)


def _average_precision(positives: Counts, samples: Counts) -> float:
    found, taken = np.cumsum(positives[::-1]), np.cumsum(samples[::-1])
    return float((positives[::-1] * (found / taken)).sum() / found[-1])
