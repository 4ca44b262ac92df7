"""Names of metrics in specs: built in, of one class, estimates without labels, and import paths."""

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints, ValidationInfo

from modyn_dagster.spec.base import require_module
from modyn_dagster.spec.tasks.objectives import UnlabelledKind

#: Mean pinball loss of quantiles, which are given by their decimals.
_PINBALL: Final = r"pinball(?:_q[0-9]{2,6})+"
#: Gain of the first ranks of a list.
_CUT_OFF: Final = r"ndcg_[1-9][0-9]{0,5}"

#: Metrics that a policy or a hook can watch.
MetricName = (
    Literal[
        "accuracy",
        "roc_auc",
        "f1",
        "log_loss",
        "mae",
        "mse",
        "r2",
        "rank_mae",
        "quadratic_kappa",
        "ranked_probability",
        "coverage",
        "interval_width",
        "subset_accuracy",
        "hamming_loss",
        "label_f1_micro",
        "label_f1_macro",
        "ndcg",
        "reciprocal_rank",
        "average_precision",
        "reconstruction_mse",
        "reconstruction_mae",
        "nt_xent",
        "alignment",
        "uniformity",
        "token_cross_entropy",
        "perplexity",
        "token_accuracy",
        "span_f1",
        "span_precision",
        "span_recall",
    ]
    | Annotated[str, StringConstraints(pattern=rf"^{_PINBALL}$")]
    | Annotated[str, StringConstraints(pattern=rf"^{_CUT_OFF}$")]
)
#: Metrics that compare samples with each other, so that no resample has an honest value.
PAIRWISE: Final = ("nt_xent", "uniformity")

_OF_CLASS: Final = r"accuracy(?:_top[1-9][0-9]*)?|f1|roc_auc|pr_auc|log_loss|brier"
_UNLABELLED: Final = (
    r"reconstruction_mse|reconstruction_mae|nt_xent|alignment|uniformity|token_cross_entropy|perplexity|token_accuracy|"
    r"span_f1|span_precision|span_recall"
)
_WHOLE: Final = (
    r"f1_macro|f1_micro|f1_weighted|calibration_error|mae|mse|r2|rank_mae|quadratic_kappa|ranked_probability|coverage|interval_width|"
    r"subset_accuracy|hamming_loss|label_f1_micro|label_f1_macro|(?:mae|mse|r2)_output_(?:0|[1-9][0-9]*)|"
    rf"ndcg|{_CUT_OFF}|reciprocal_rank|average_precision|{_UNLABELLED}|{_PINBALL}"
)
#: Metrics that can be estimated without labels.
ESTIMATED: Final = ("accuracy", "f1", "f1_macro", "f1_micro", "log_loss", "roc_auc")
_PREFIX: Final = "estimated_"
_NAME: Final = re.compile(rf"(?:{_WHOLE})|(?:{_OF_CLASS})(?:_class_(?:0|[1-9][0-9]*))?|{_PREFIX}(?:{'|'.join(ESTIMATED)})")
_LOSSES: Final = (
    *("log_loss", "brier", "calibration_error", "mae", "mse"),
    *("rank_mae", "ranked_probability", "pinball", "interval_width", "hamming_loss"),
    *("reconstruction_", "nt_xent", "alignment", "uniformity", "token_cross_entropy", "perplexity"),
)


def _check(name: str, info: ValidationInfo) -> str:
    if ":" in name:
        if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name):
            raise ValueError("must be an import path `package.module:function` of a module that exists")
        require_module(name.partition(":")[0], info)
    elif not _NAME.fullmatch(name):
        raise ValueError(
            "must be accuracy, accuracy_top<k>, f1, f1_macro, f1_micro, f1_weighted, roc_auc, pr_auc, log_loss, brier, "
            "calibration_error, mae, mse, r2, rank_mae, quadratic_kappa, ranked_probability, "
            "pinball_q10_q90 (of quantiles), coverage, interval_width, subset_accuracy, hamming_loss, label_f1_micro, "
            "label_f1_macro, mae_output_1 (of several targets), ndcg, ndcg_10, reciprocal_rank, average_precision (of rankings), "
            "one of a class such as f1_class_3, an estimate without labels such as "
            "estimated_accuracy, reconstruction_mse, reconstruction_mae, nt_xent, alignment, uniformity, token_cross_entropy, "
            "perplexity, token_accuracy, span_f1, span_precision, span_recall, or an import path"
        )
    return name


#: A built-in metric, or ``package.module:function`` taking ``(outputs [n, k], truth [n])`` to a number.
MetricId = Annotated[
    str,
    AfterValidator(_check),
    Field(examples=["accuracy", "accuracy_top5", "f1_macro", "roc_auc_class_3", "estimated_accuracy", "my.metrics:cost"]),
]


def estimated_metric(name: str) -> str | None:
    """Metric that a name is the estimate of, without labels; None for a metric that is measured.

    >>> estimated_metric("estimated_f1"), estimated_metric("f1")
    ('f1', None)
    """
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else None


def name_of_estimate(metric: str) -> str:
    """Name of the estimate of a metric.

    >>> name_of_estimate("f1")
    'estimated_f1'
    """
    return f"{_PREFIX}{metric}"


def lower_is_better(metric: str) -> bool:
    """Test that smaller values of a metric are better. An import path counts as a score, of which larger values are better.

    >>> lower_is_better("log_loss_class_2"), lower_is_better("accuracy")
    (True, False)
    """
    return metric.removeprefix(_PREFIX).startswith(_LOSSES) and ":" not in metric


#: Accuracies are means of a loss per sample, and so are the metrics of `MEAN_LOSSES`.
ACCURACY: Final = re.compile(r"accuracy(?:_top(\d+))?")
#: Other metrics that are means of a loss per sample, by the kind of truth that they are for.
MEAN_LOSSES: Final[dict[str, Literal["class", "target", UnlabelledKind]]] = {
    "log_loss": "class",
    "brier": "class",
    "rank_mae": "class",
    "ranked_probability": "class",
    "mse": "target",
    "mae": "target",
    "reconstruction_mse": "reconstruction",
    "reconstruction_mae": "reconstruction",
    "alignment": "contrastive",
}


def truth_of_losses(metric: str) -> Literal["class", "target", UnlabelledKind] | None:
    """Kind of truth of a metric that is a mean of losses of single samples; None for every other metric."""
    if re.fullmatch(_PINBALL, metric):
        return "target"
    return "class" if ACCURACY.fullmatch(metric) else MEAN_LOSSES.get(metric)


def has_sample_losses(metric: str) -> bool:
    """Test that a metric is a mean of losses of single samples.

    >>> [has_sample_losses(name) for name in ("accuracy", "accuracy_top5", "log_loss", "roc_auc", "accuracy_class_1")]
    [True, True, True, False, False]
    """
    return truth_of_losses(metric) is not None
