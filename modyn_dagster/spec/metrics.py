"""Names of metrics: what a pipeline may ask for, as text."""

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from modyn_dagster.spec.base import module_exists

#: Those a policy or a hook can watch.
MetricName = Literal["accuracy", "roc_auc", "f1", "log_loss", "mae", "mse", "r2"]

_OF_CLASS: Final = r"accuracy(?:_top[1-9][0-9]*)?|f1|roc_auc|pr_auc|log_loss|brier"
_WHOLE: Final = r"f1_macro|f1_micro|f1_weighted|calibration_error|mae|mse|r2"
_NAME: Final = re.compile(rf"(?:{_WHOLE})|(?:{_OF_CLASS})(?:_class_(?:0|[1-9][0-9]*))?")
_LOSSES: Final = ("log_loss", "brier", "calibration_error", "mae", "mse")


def _check(name: str) -> str:
    if ":" in name:
        module = name.partition(":")[0]
        if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name) or not module_exists(module):
            raise ValueError("must be an import path `package.module:function` of a module that exists")
    elif not _NAME.fullmatch(name):
        raise ValueError(
            "must be accuracy, accuracy_top<k>, f1, f1_macro, f1_micro, f1_weighted, roc_auc, pr_auc, log_loss, brier, "
            "calibration_error, mae, mse, r2, one of a class such as f1_class_3, or an import path"
        )
    return name


#: A built-in metric, or ``package.module:function`` taking ``(outputs [n, k], truth [n])`` to a number.
MetricId = Annotated[
    str, AfterValidator(_check), Field(examples=["accuracy", "accuracy_top5", "f1_macro", "roc_auc_class_3", "my.metrics:cost"])
]


def lower_is_better(metric: str) -> bool:
    """Whether a smaller value of a metric is a better one; an import path is taken for a score, where more is better.

    >>> lower_is_better("log_loss_class_2"), lower_is_better("accuracy")
    (True, False)
    """
    return metric.startswith(_LOSSES) and ":" not in metric
