"""Learning tasks: specs of ``training.task``, and the meaning of each task for labels, losses, outputs and metrics.

Everything that depends on the task asks ``TASKS``: a task is its entry here, its losses in ``training/models/losses.py`` and its
metrics in ``evaluation/metrics``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from modyn_dagster.spec.base import Spec

LossName = Literal["cross_entropy", "mse", "l1", "ranked_probability"]
TaskName = Literal["class", "target", "ordinal"]


class OrdinalTask(Spec):
    """Classes with an order: a prediction is the worse, the further its class is from the true one.

    The order is that of the dataset's ``classes`` or of its numbers, or that of the groups of a label transform.
    """

    kind: Literal["ordinal"]


TaskSpec = OrdinalTask


@dataclass(frozen=True, slots=True)
class TaskMeaning:
    """Meaning of a task.

    Attributes:
        label: kind of label that it learns, after the label transform.
        losses: names of the built-in losses, the default first.
        metrics: tasks whose metrics fit.
        refused_downsampling: policies that do not fit, each with the reason.
    """

    label: Literal["class", "target"]
    losses: tuple[LossName, ...]
    metrics: tuple[TaskName, ...]
    refused_downsampling: Mapping[str, str]


_NO_CROSS_ENTROPY: Final = {"dlis": "draws by gradients of the cross-entropy; use `loss`, which draws by the loss itself"}

#: Tasks by name.
TASKS: Final[Mapping[TaskName, TaskMeaning]] = {
    "class": TaskMeaning("class", ("cross_entropy",), ("class",), {}),
    "target": TaskMeaning("target", ("mse", "l1"), ("target",), {}),
    "ordinal": TaskMeaning("class", ("ranked_probability", "cross_entropy"), ("ordinal", "class"), _NO_CROSS_ENTROPY),
}


def task_name(task: TaskSpec | None, label: Literal["class", "target"]) -> TaskName:
    """Name of a task: that of its spec, or else the kind of label.

    >>> task_name(None, "target"), task_name(OrdinalTask(kind="ordinal"), "class")
    ('target', 'ordinal')
    """
    return label if task is None else task.kind
