"""Learning tasks: specs of ``training.task``, and the meaning of each task for labels, losses, outputs and metrics.

Everything that depends on the task asks ``TASKS``: a task is its entry here, its losses in ``training/models/losses.py`` and its
metrics in ``evaluation/metrics``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from modyn_dagster.spec.base import Spec
from modyn_dagster.spec.learning.downsampling import CLASSES_ONLY
from modyn_dagster.spec.learning.features import require_no_repeats
from modyn_dagster.spec.tasks.objectives import UnlabelledKind

LossName = Literal[
    "cross_entropy",
    "mse",
    "l1",
    "ranked_probability",
    "pinball",
    "binary_cross_entropy",
    "pairwise_logistic",
    "listwise_softmax",
]
TaskName = Literal["class", "target", "ordinal", "quantiles", "multi_output", "multi_label", "ranking", UnlabelledKind]

#: Decimals of a quantile, which names of metrics repeat.
_DECIMALS: Final = 6

#: Places of relevance and group in the truth of a ranking.
RELEVANCE: Final = 0
GROUP: Final = 1
#: Largest relevance. Gains are ``2^relevance - 1``; XGBoost has the same bound.
MOST_RELEVANT: Final = 31

Level = Annotated[float, Field(gt=0, lt=1)]
ColumnName = Annotated[str, Field(min_length=1)]


class OrdinalTask(Spec):
    """Classes with an order: a prediction is the worse, the further its class is from the true one.

    The order is that of the dataset's ``classes`` or of its numbers, or that of the groups of a label transform.
    """

    kind: Literal["ordinal"]


class QuantilesTask(Spec):
    """Quantiles of a target: one output for each, in ascending order."""

    kind: Literal["quantiles"]
    quantiles: list[Level] = Field(min_length=1, description="Ascending, between 0 and 1.", examples=[[0.1, 0.5, 0.9]])

    @model_validator(mode="after")
    def _ascend(self) -> Self:
        if any(high <= low for low, high in pairwise(self.quantiles)):
            raise ValueError("quantiles must ascend, each once")
        if long := next((level for level in self.quantiles if round(level, _DECIMALS) != level), None):
            raise ValueError(f"quantiles: {long} has more than {_DECIMALS} decimals")
        return self

    @property
    def pinball(self) -> str:
        """Name of the metric that is the mean pinball loss of these quantiles.

        >>> QuantilesTask(kind="quantiles", quantiles=[0.025, 0.5, 0.9]).pinball
        'pinball_q025_q50_q90'
        """
        return "_q".join(["pinball", *(f"{level:.{_DECIMALS}f}"[2:].rstrip("0").ljust(2, "0") for level in self.quantiles)])


class SeveralColumns(Spec):
    """Several columns of a sample as its truth; the dataset's label, which is the first, stays the label of everything else."""

    columns: list[ColumnName] = Field(
        min_length=2, description="The column of the dataset's label, then further columns of the same rows."
    )

    @model_validator(mode="after")
    def _columns_differ(self) -> Self:
        require_no_repeats(list(self.columns), "columns")
        return self


class MultiOutputTask(SeveralColumns):
    """Several targets at once: one output for each."""

    kind: Literal["multi_output"]


class MultiLabelTask(SeveralColumns):
    """Several labels that a sample has or has not, each a column of 0 and 1: a logit for each."""

    kind: Literal["multi_label"]


class RankingTask(Spec):
    """Scores that rank the samples of a group, such as the results of a query, by relevance: the dataset's label, 0 to 31."""

    kind: Literal["ranking"]
    group: ColumnName = Field(
        description="Column of whole numbers or text; rows with the same value are one list.", examples=["query"]
    )


TaskSpec = Annotated[OrdinalTask | QuantilesTask | MultiOutputTask | MultiLabelTask | RankingTask, Field(discriminator="kind")]


@dataclass(frozen=True, slots=True)
class TaskMeaning:
    """Meaning of a task.

    Attributes:
        label: kind of label that it learns, after the label transform; None where it reads no label.
        truth: kind of what outputs are compared with: classes, numbers, or what a loss without labels makes of the inputs.
        losses: names of the built-in losses, the default first; those without labels have specs of their own.
        metrics: tasks whose metrics fit.
        refused_downsampling: policies that do not fit, each with the reason.
    """

    label: Literal["class", "target"] | None
    truth: Literal["class", "target", UnlabelledKind]
    losses: tuple[LossName, ...]
    metrics: tuple[TaskName, ...]
    refused_downsampling: Mapping[str, str]


_NO_CROSS_ENTROPY: Final = {"dlis": "draws by gradients of the cross-entropy; use `loss`, which draws by the loss itself"}
_NO_CLASSES: Final = dict.fromkeys(CLASSES_ONLY, "needs classes")

#: Tasks by name.
TASKS: Final[Mapping[TaskName, TaskMeaning]] = {
    "class": TaskMeaning("class", "class", ("cross_entropy",), ("class",), {}),
    "target": TaskMeaning("target", "target", ("mse", "l1"), ("target",), _NO_CLASSES),
    "ordinal": TaskMeaning("class", "class", ("ranked_probability", "cross_entropy"), ("ordinal", "class"), _NO_CROSS_ENTROPY),
    "quantiles": TaskMeaning("target", "target", ("pinball",), ("quantiles",), _NO_CLASSES),
    "multi_output": TaskMeaning("target", "target", ("mse", "l1"), ("target", "multi_output"), _NO_CLASSES),
    "multi_label": TaskMeaning("class", "target", ("binary_cross_entropy",), ("multi_label",), _NO_CLASSES),
    "ranking": TaskMeaning("target", "target", ("pairwise_logistic", "listwise_softmax"), ("ranking",), _NO_CLASSES),
    "reconstruction": TaskMeaning(None, "reconstruction", (), ("reconstruction",), _NO_CLASSES),
    "contrastive": TaskMeaning(None, "contrastive", (), ("contrastive",), _NO_CLASSES),
    "tokens": TaskMeaning(None, "tokens", (), ("tokens",), _NO_CLASSES),
    "tags": TaskMeaning(None, "tags", (), ("tokens", "tags"), _NO_CLASSES),
}


def truth_columns(task: TaskSpec | None) -> tuple[str, ...]:
    """Columns that are read for the truth, where it is more than the dataset's label; empty for every other task.

    >>> truth_columns(MultiOutputTask(kind="multi_output", columns=["low", "high"])), truth_columns(None)
    (('low', 'high'), ())
    """
    if isinstance(task, RankingTask):
        return (task.group,)
    return tuple(task.columns) if isinstance(task, SeveralColumns) else ()


def truth_width(task: TaskSpec | None) -> int:
    """Values of a sample's truth, where they are several: those of all columns, or relevance and group; 0 for one.

    >>> truth_width(RankingTask(kind="ranking", group="query")), truth_width(None)
    (2, 0)
    """
    return len((RELEVANCE, GROUP)) if isinstance(task, RankingTask) else len(truth_columns(task))


def task_name(task: TaskSpec | None, label: Literal["class", "target", UnlabelledKind]) -> TaskName:
    """Name of a task: that of its spec, or else the kind of label, or of learning without one.

    >>> task_name(None, "target"), task_name(OrdinalTask(kind="ordinal"), "class")
    ('target', 'ordinal')
    """
    return label if task is None else task.kind
