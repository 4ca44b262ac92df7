"""Bounded losses of single samples, as paired tests need them: in [0, 1], with the value of the metric that 1 stands for."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples, Outputs, Truth
from modyn_dagster.evaluation.metrics.losses import Float64, pinball_losses, reduce_columns, view_distances
from modyn_dagster.evaluation.metrics.registry import find_metric
from modyn_dagster.evaluation.metrics.tasks.ordinal import rank_distances, ranked_probabilities
from modyn_dagster.spec.promotion.gate import UNBOUNDED
from modyn_dagster.spec.tasks.metrics import ACCURACY, MEAN_LOSSES, has_sample_losses, truth_of_losses
from modyn_dagster.spec.training import TaskKind

#: Nats at which the log loss of a sample is clipped unless a bound is given: probabilities below 0.0067 count alike.
LOG_LOSS_BOUND: Final = 5.0


#: Losses of samples by metric; all others are accuracies.
_LOSSES: Final[Mapping[str, Callable[[EvaluationSamples], Float64]]] = {
    "log_loss": lambda samples: samples.losses,
    "brier": lambda samples: samples.squares,
    "mse": lambda samples: np.square(samples.errors),
    "mae": lambda samples: np.abs(samples.errors),
    "rank_mae": rank_distances,
    "ranked_probability": ranked_probabilities,
    "reconstruction_mse": lambda samples: samples.outputs[:, 0].astype(np.float64),
    "reconstruction_mae": lambda samples: samples.outputs[:, 1].astype(np.float64),
    "alignment": lambda samples: view_distances(samples.outputs),
}
#: Largest squared distance on the unit sphere.
_FARTHEST: Final = 4.0


class PairedDifferences(NamedTuple):
    """Loss of the incumbent less that of the candidate, ``float64[n]`` in [-1, 1], and the value that 1 stands for."""

    values: Float64
    unit: float


def loss_unit(metric: str, bound: float | None, n_classes: int) -> float:
    """Largest loss of one sample that counts, in the unit of the metric.

    1 for accuracies and ``ranked_probability``; 4 for ``alignment``; ``bound`` for ``mse``, ``mae``, pinball losses and errors of
    reconstructions, which have none of their own;
    ``bound`` or 5 nats for ``log_loss``; 1 for ``brier``, or 2 with more than two classes; the largest distance of classes for
    ``rank_mae``.

    Raises:
        ConfigError: the metric is no mean of losses, or its losses have no bound and none is given, or need none.

    >>> loss_unit("accuracy", None, 2), loss_unit("log_loss", None, 2), loss_unit("mse", 9.0, 1), loss_unit("brier", None, 3)
    (1.0, 5.0, 9.0, 2.0)
    """
    if not has_sample_losses(metric):
        rule = "has no loss of single samples; test it with block_bootstrap"
        raise ConfigError("paired test", "metric", metric, rule)
    if bound is not None and not 0 < bound < np.inf:
        raise ConfigError("paired test", "bound", bound, "must be a positive number")
    if metric == "log_loss":
        return LOG_LOSS_BOUND if bound is None else float(bound)
    if metric.startswith(UNBOUNDED):
        if bound is None:
            rule = f"the losses of {metric} have no bound of their own: give the largest loss of a sample that counts"
            raise ConfigError("paired test", "bound", None, rule)
        return float(bound)
    if bound is not None:
        raise ConfigError("paired test", "bound", bound, f"the losses of {metric} have a bound of their own; leave it out")
    if metric == "rank_mae":
        return float(max(1, n_classes - 1))
    if metric == "alignment":
        return _FARTHEST
    return 2.0 if metric == "brier" and n_classes > 2 else 1.0


def bounded_losses(metric: str, outputs: Outputs, truth: Truth, unit: float) -> Float64:
    """Losses of samples divided by ``unit`` and clipped at 1, ``float64[n]``.

    Accuracy: 0 where the prediction is right, else 1. Log loss: ``-log(max(p, exp(-unit))) / unit`` for the probability p of the
    class. Brier: squared distance of the probabilities from the truth. A sample of a class that the model does not know, or with
    outputs that are not finite, counts with the largest loss.

    Args:
        metric: a mean of losses, see ``has_sample_losses``.
        outputs: ``float32[n, k]``, or measures of models without a label.
        truth: classes ``int64[n]`` from 0 on, or finite targets ``float64[n]``; zeros ``float64[n]`` where there is no label.
        unit: as by ``loss_unit``.

    >>> bounded_losses("accuracy", np.eye(2, dtype=np.float32), np.array([0, 0]), 1.0)
    array([0., 1.])
    """
    finite = reduce_columns(np.logical_and, np.isfinite(outputs))
    usable = finite & (truth < outputs.shape[1]) if truth_of_losses(metric) == "class" else finite
    with np.errstate(all="ignore"):
        losses = _losses(metric, EvaluationSamples(np.where(usable[:, None], outputs, 0), truth))
        return np.where(usable, np.minimum(losses / unit, 1.0), 1.0)


def paired_differences(
    metric: str, candidate: Outputs, incumbent: Outputs, truth: Truth, *, bound: float | None = None
) -> PairedDifferences:
    """Differences of the losses of two models on the same samples; positive ones are in favour of the candidate.

    Args:
        metric: a mean of losses.
        candidate, incumbent: outputs ``float32[n, k]``; the models may know different numbers of classes.
        truth: as of ``bounded_losses``.
        bound: largest loss of a sample that counts, in the unit of the metric, see ``loss_unit``.

    >>> paired_differences("accuracy", np.array([[2, 1]], np.float32), np.array([[1, 2]], np.float32), np.array([0])).values
    array([1.])
    """
    unit = loss_unit(metric, bound, max(candidate.shape[1], incumbent.shape[1]))
    kind: TaskKind = "target" if truth.dtype.kind == "f" else "class"
    if ("class" if truth_of_losses(metric) == "class" else "target") != kind:
        raise ConfigError("paired test", "metric", metric, f"the samples have a {kind}: use {_of_kind(kind)}")
    if kind == "target" and not np.isfinite(truth).all():
        raise ConfigError("paired test", "truth", float(truth[~np.isfinite(truth)][0]), "must be a finite target")
    theirs, ours = (bounded_losses(metric, outputs, truth, unit) for outputs in (incumbent, candidate))
    return PairedDifferences(theirs - ours, unit)


def _of_kind(kind: TaskKind) -> str:
    return ", ".join([*(["accuracy"] if kind == "class" else []), *(name for name, task in MEAN_LOSSES.items() if task == kind)])


def _losses(metric: str, samples: EvaluationSamples) -> Float64:
    if metric in _LOSSES:
        return _LOSSES[metric](samples)
    if truth_of_losses(metric) == "target":
        return pinball_losses(samples.outputs, samples.truth, find_metric(metric).parameters["levels"])
    top = ACCURACY.fullmatch(metric)
    return 1.0 - samples.correct(int(top[1]) if top and top[1] else 1)
