"""Metrics by name, and scores of samples: a number, or the reason why there is none.

Metrics work on raw outputs in float64 and are written in numpy: those of torchmetrics take float32 sums and 0.2 ms a call, which
a matrix of models and intervals pays a hundred thousand times. Tests compare them with scikit-learn and torchmetrics.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from typing import Any, Final, Literal

import numpy as np

from modyn_dagster.errors import ConfigError, ImportPathError
from modyn_dagster.evaluation.metrics import classification, ranking, regression, unlabelled
from modyn_dagster.evaluation.metrics.evaluation_samples import (
    CellFailed,
    EvaluationSamples,
    Flags,
    Outputs,
    Truth,
    UndefinedScore,
)
from modyn_dagster.evaluation.metrics.groups import Groups, Slices
from modyn_dagster.evaluation.metrics.losses import Float64
from modyn_dagster.evaluation.metrics.tasks import labels, lists, ordinal, quantiles, spans
from modyn_dagster.evaluation.metrics.torch_metrics import check_torchmetric, is_torchmetric, kind_of, torchmetric
from modyn_dagster.imports import import_callable
from modyn_dagster.spec.tasks.metrics import estimated_metric
from modyn_dagster.spec.tasks.task import TASKS, TaskName
from modyn_dagster.spec.training import TaskKind
from modyn_dagster.values.code_digest import code_digest

_PARAMETERS: Final = re.compile(
    r"(?P<base>[a-z0-9_]+?)(?:_top(?P<k>\d+))?(?:_class_(?P<positive>\d+))?"
    r"(?:_output_(?P<output>\d+))?(?:(?<=ndcg)_(?P<cutoff>[1-9]\d*))?(?P<levels>(?:_q\d{2,6})+)?"
)


@dataclass(frozen=True, slots=True)
class Score:
    """The result of a metric.

    Attributes:
        value: None where it is undefined; never NaN or infinite.
        n: samples (or intervals) it was computed from.
        undefined: why there is no value; None where there is one.
        n_unlabelled: samples left out because they have no label.
        failed: something is wrong (a metric that raises, a label outside the classes), not only too few samples.
    """

    value: float | None
    n: int
    undefined: str | None = None
    n_unlabelled: int = 0
    failed: bool = False

    @property
    def reason(self) -> str | None:
        """Reason why there is no value; it begins with ``failed:`` where something is wrong."""
        return f"failed: {self.undefined}" if self.failed else self.undefined


def _no_check(samples: EvaluationSamples, part: slice) -> None:
    """Accept every slice."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric under a name.

    Attributes:
        kind: task it is for, by ``TASKS`` also for others; None: any.
        kernel: computes the value of every group.
        check: raises ``UndefinedScore`` or ``CellFailed`` where a slice has no value; called before the kernel.
        batched: whether the kernel takes many slices at once: always, never, or for one class, named or the second of two.
        resampled: whether the kernel takes resamples of the bootstrap.
        of_lists: value of every list of a ranking, whose mean the metric is: the bootstrap draws lists. None for others.
        parameters: keyword arguments of kernel and check.
    """

    kind: TaskName | None
    kernel: Callable[..., Float64]
    check: Callable[..., None] = _no_check
    batched: Literal[True, False, "one class"] = False
    resampled: bool = True
    of_lists: Callable[..., Float64] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def values(self, groups: Groups) -> Float64:
        """The value of every group, NaN where it is undefined."""
        return self.kernel(groups, **self.parameters)

    def fits(self, task: TaskName) -> bool:
        """Tell whether outputs and truth of a task are those that the metric compares."""
        return self.kind is None or self.kind in TASKS[task].metrics


def _of_lists(of_lists: Callable[..., Float64]) -> Metric:
    """A metric that is a mean over the lists of a ranking."""
    kernel = partial(lists.mean_over_lists, of_lists)
    return Metric("ranking", kernel, lists.check_relevant, resampled=False, of_lists=of_lists)


_F1: Final = Metric("class", classification.f1, classification.check_f1, "one class")

METRICS: Final[Mapping[str, Metric]] = {
    "accuracy": Metric("class", classification.accuracy, classification.check_class, batched=True),
    "roc_auc": Metric("class", ranking.roc_auc, ranking.check_ranking, batched="one class"),
    "pr_auc": Metric("class", ranking.pr_auc, ranking.check_ranking),
    "f1": _F1,
    "f1_macro": replace(_F1, batched=False, parameters={"average": "macro"}),
    "f1_micro": replace(_F1, batched=False, parameters={"average": "micro"}),
    "f1_weighted": replace(_F1, batched=False, parameters={"average": "weighted"}),
    "log_loss": Metric("class", classification.log_loss, classification.check_probabilities, batched=True),
    "brier": Metric("class", classification.brier, classification.check_probabilities, batched=True),
    "calibration_error": Metric("class", classification.calibration_error, batched=True),
    "mae": Metric("target", regression.mae, regression.check_output),
    "mse": Metric("target", regression.mse, regression.check_output),
    "r2": Metric("target", regression.r2, regression.check_spread),
    "rank_mae": Metric("ordinal", ordinal.rank_mae, ordinal.check_ranks, batched=True),
    "quadratic_kappa": Metric("ordinal", ordinal.quadratic_kappa, ordinal.check_kappa),
    "ranked_probability": Metric("ordinal", ordinal.ranked_probability, ordinal.check_ranks, batched=True),
    "pinball": Metric("quantiles", quantiles.pinball, quantiles.check_levels),
    "coverage": Metric("quantiles", quantiles.coverage, quantiles.check_interval),
    "subset_accuracy": Metric("multi_label", labels.subset_accuracy),
    "hamming_loss": Metric("multi_label", labels.hamming_loss),
    "label_f1_micro": Metric("multi_label", labels.label_f1_micro),
    "label_f1_macro": Metric("multi_label", labels.label_f1_macro),
    "interval_width": Metric("quantiles", quantiles.interval_width, quantiles.check_interval),
    "ndcg": _of_lists(lists.ndcg),
    "reciprocal_rank": _of_lists(lists.reciprocal_rank),
    "average_precision": _of_lists(lists.average_precision),
    "reconstruction_mse": Metric("reconstruction", unlabelled.reconstruction_mse),
    "reconstruction_mae": Metric("reconstruction", unlabelled.reconstruction_mae),
    "nt_xent": Metric("contrastive", unlabelled.nt_xent, unlabelled.check_pairs),
    "alignment": Metric("contrastive", unlabelled.alignment),
    "uniformity": Metric("contrastive", unlabelled.uniformity, unlabelled.check_pairs),
    "token_cross_entropy": Metric("tokens", unlabelled.token_cross_entropy, unlabelled.check_tokens),
    "perplexity": Metric("tokens", unlabelled.perplexity, unlabelled.check_tokens),
    "token_accuracy": Metric("tokens", unlabelled.token_accuracy, unlabelled.check_tokens),
    "span_f1": Metric("tags", spans.span_f1, spans.check_spans),
    "span_precision": Metric("tags", spans.span_precision, spans.check_predicted_spans),
    "span_recall": Metric("tags", spans.span_recall, spans.check_true_spans),
}
#: Names of metrics in errors that need parameters.
_SHOWN: Final = {"ndcg": "ndcg, ndcg_10", "pinball": "pinball_q10_q90 (of the quantiles of the task)"}


def find_metric(name: str) -> Metric:
    """A metric by its name (``accuracy_top5``, ``f1_class_3``, ``pinball_q10_q90``) or import path.

    Raises ``ConfigError`` for an unknown name, ``ImportPathError`` for a path that cannot be imported or called.

    >>> find_metric("accuracy_top5").parameters
    {'k': 5}
    """
    if ":" in name:
        function = import_callable(name, source="evaluation", field="metrics")
        if not is_torchmetric(name):
            return Metric(None, _kernel_of(function), resampled=False)
        return Metric(kind_of(name), _kernel_of(torchmetric(name, function)), check_torchmetric(name), resampled=False)
    if name in METRICS:
        return METRICS[name]
    match = _PARAMETERS.fullmatch(name)
    metric = METRICS.get(match["base"]) if match else None
    if match is None or metric is None or (match["levels"] is not None and match["base"] != "pinball"):
        raise ConfigError("evaluation", "metrics", name, f"must be one of {', '.join(METRICS)}, or an import path")
    parameters: dict[str, Any] = {
        name: int(match[name]) for name in ("k", "positive", "output", "cutoff") if match[name] is not None
    }
    if match["levels"] is not None:
        parameters["levels"] = tuple(float(f"0.{digits}") for digits in match["levels"].split("_q")[1:])
    return replace(metric, parameters={**metric.parameters, **parameters})


def metric_code(name: str) -> str:
    """Digest of the code of a user's metric, version of torchmetrics for one of its functions, empty for those of ``METRICS``.

    Raises ``ImportPathError`` for a path that cannot be imported or called; torchmetrics is not imported.
    """
    if is_torchmetric(name):
        return version("torchmetrics")
    return code_digest(import_callable(name, source="evaluation", field="metrics")) if ":" in name else ""


def score(metric: str, outputs: Outputs, truth: Truth, *, min_samples: int = 1) -> Score:
    """Score the outputs of a model.

    Args:
        metric: a name of ``METRICS``, with its parameters, or an import path.
        outputs: ``float32[n, k]``: logits of k classes, or one predicted target.
        truth: classes ``int64[n]`` (below 0: unlabelled) or targets ``float64[n]``.
        min_samples: fewer labelled samples have no score.

    >>> score("accuracy", np.array([[2, 1], [0, 1]], np.float32), np.array([0, 0]))
    Score(value=0.5, n=2, undefined=None, n_unlabelled=0, failed=False)
    """
    samples, n_unlabelled = labelled_samples(outputs, truth)
    return score_slice(find_metric(metric), samples, slice(0, len(samples)), n_unlabelled, min_samples=min_samples)


def labelled_samples(outputs: Outputs, truth: Truth) -> tuple[EvaluationSamples, int]:
    """The samples that have a label, and the number of those without."""
    labelled = is_labelled(truth)
    n_unlabelled = int(len(truth) - labelled.sum())
    if n_unlabelled:
        outputs, truth = outputs[labelled], truth[labelled]
    return EvaluationSamples(outputs, truth), n_unlabelled


def is_labelled(truth: Truth) -> Flags:
    """Flags of the labelled samples, ``bool[n]``: classes from 0 on, and every target. A NaN target is a fault, not a gap."""
    return np.ones(len(truth), dtype=np.bool_) if truth.dtype.kind == "f" else np.asarray(truth >= 0)


def score_slice(metric: Metric, samples: EvaluationSamples, part: slice, n_unlabelled: int, *, min_samples: int) -> Score:
    """Score one slice of rows; an exception of the metric fails this cell alone."""
    n = part.stop - part.start
    try:
        _check_samples(samples, part, min_samples)
        metric.check(samples, part, **metric.parameters)
        with np.errstate(over="ignore"):
            value = float(metric.values(Slices.of_part(samples, part))[0])
    except UndefinedScore as reason:
        return Score(None, n, str(reason), n_unlabelled)
    except CellFailed as failure:
        return Score(None, n, str(failure), n_unlabelled, failed=True)
    if not np.isfinite(value):
        return Score(None, n, "its value is beyond the range of numbers", n_unlabelled)
    return Score(value, n, None, n_unlabelled)


def score_parts(
    metric: Metric, samples: EvaluationSamples, parts: Sequence[slice], n_unlabelled: Sequence[int], *, min_samples: int
) -> list[Score]:
    """Score many slices of rows: to the bit the scores of ``score_slice``, computed together where the metric allows."""
    values = _batched_values(metric, samples, parts, min_samples)
    return [
        Score(value, part.stop - part.start, None, missing)
        if value is not None
        else score_slice(metric, samples, part, missing, min_samples=min_samples)
        for value, part, missing in zip(values, parts, n_unlabelled, strict=True)
    ]


def check_metrics(metrics: Sequence[str], task: TaskName, *, source: str, field: str = "evaluation.metrics") -> None:
    """Raise ``ConfigError`` for a metric of another task than the models', or one that cannot be imported."""
    for name in metrics:
        try:
            metric = find_metric(estimated_metric(name) or name)
        except ImportPathError as error:
            raise ImportPathError(source, field, name, error.rule) from error
        if not metric.fits(task):
            raise ConfigError(source, field, name, rule_of_task(task))


def task_of_metric(name: str, label: TaskKind) -> TaskName:
    """Task of a metric among those that learn a kind of label; that of the label itself for every other metric.

    >>> task_of_metric("pinball_q10_q90", "target"), task_of_metric("rank_mae", "target"), task_of_metric("accuracy", "class")
    ('quantiles', 'target', 'class')
    """
    match = _PARAMETERS.fullmatch(name)
    metric = METRICS.get(match["base"]) if match else None
    return metric.kind if metric is not None and metric.kind is not None and TASKS[metric.kind].label == label else label


def rule_of_task(task: TaskName) -> str:
    """Rule that names the metrics of a task.

    >>> rule_of_task("reconstruction")
    'the dataset has no label, and the task of training.loss is reconstruction: use reconstruction_mse, reconstruction_mae'
    """
    return f"{task_in_words(task)}: use {', '.join(_SHOWN.get(name, name) for name in metrics_of(task))}"


def metrics_of(task: TaskName) -> list[str]:
    """Names of the metrics that fit a task.

    >>> metrics_of("reconstruction")
    ['reconstruction_mse', 'reconstruction_mae']
    """
    return [name for name, metric in METRICS.items() if metric.fits(task)]


def task_in_words(task: TaskName) -> str:
    """Describe a task for complaints.

    >>> task_in_words("target"), task_in_words("ordinal")
    ("the dataset's label is a target", 'the task is ordinal')
    """
    if TASKS[task].label is None:
        return f"the dataset has no label, and the task of training.loss is {task}"
    return f"the dataset's label is a {task}" if task == TASKS[task].label else f"the task is {task}"


def _batched_values(metric: Metric, samples: EvaluationSamples, parts: Sequence[slice], min_samples: int) -> list[float | None]:
    """Values of the slices that one call of the kernel can give; None for all others."""
    values: list[float | None] = [None] * len(parts)
    one_class = samples.n_classes == 2 or "positive" in metric.parameters
    if samples.truth.dtype.kind == "f" or not (one_class if metric.batched == "one class" else metric.batched):
        return values
    starts, stops = (np.array([getattr(part, end) for part in parts], dtype=np.int64) for end in ("start", "stop"))
    usable = stops - starts >= max(1, min_samples)
    for before in (samples.nonfinite_before, samples.unknown_class_before):
        usable &= before[stops] == before[starts]
    rows = np.flatnonzero(usable)
    if len(rows):
        with np.errstate(all="ignore"):
            batch = metric.values(Slices(samples, starts[rows], stops[rows]))
        for row, value in zip(rows.tolist(), batch.tolist(), strict=True):
            values[row] = value if np.isfinite(value) else None
    return values


def _check_samples(samples: EvaluationSamples, part: slice, min_samples: int) -> None:
    """Raise ``UndefinedScore`` for too few samples or nonfinite outputs, ``CellFailed`` for nonfinite targets."""
    n = part.stop - part.start
    if n == 0:
        raise UndefinedScore("no labelled samples")
    if n < min_samples:
        raise UndefinedScore(f"{n} labelled samples, at least {min_samples} are needed")
    nonfinite = int(samples.nonfinite_before[part.stop] - samples.nonfinite_before[part.start])
    if nonfinite:
        raise UndefinedScore(f"the model's outputs are not finite for {nonfinite} of {n} samples")
    if samples.truth.dtype.kind == "f" and not np.isfinite(samples.truth[part]).all():
        raise CellFailed("a target is NaN" if np.isnan(samples.truth[part]).any() else "a target is infinite")


def _kernel_of(function: Callable[[Outputs, Truth], float]) -> Callable[[Groups], Float64]:
    """Kernel that calls a function group by group; its exceptions fail the cell."""

    def value(outputs: Outputs, truth: Truth) -> float:
        try:
            return float(function(outputs, truth))
        except UndefinedScore:
            raise
        except Exception as error:
            raise CellFailed(f"{type(error).__name__}: {error}") from error

    return lambda groups: groups.apart(value)
