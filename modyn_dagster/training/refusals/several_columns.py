"""Settings of a training that do not go with a truth of several columns, or of relevance and group."""

from collections.abc import Iterator
from typing import Final

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.tasks.task import RankingTask, SeveralColumns, truth_columns
from modyn_dagster.spec.training import TrainingSpec

#: A task that reads more than one label per sample, in words.
SEVERAL: Final = "the task has several columns"
GROUPS: Final = "the task compares the samples of a group"


def in_words(task: SeveralColumns | RankingTask) -> str:
    """Describe a task for complaints."""
    return GROUPS if isinstance(task, RankingTask) else SEVERAL


def check_columns(spec: TrainingSpec, task: SeveralColumns | RankingTask, *, source: str) -> None:
    """Raise ``ConfigError`` for the first setting of a training that does not go with the task."""
    for field, value, rule in _refusals(spec, task):
        raise ConfigError(source, f"training.{field}", value, rule)


def _refusals(spec: TrainingSpec, task: SeveralColumns | RankingTask) -> Iterator[tuple[str, object, str]]:
    why = in_words(task)
    if spec.label_transform is not None:
        yield "label_transform", "(on)", f"changes one label, and {why}: leave it out"
    if spec.parser is not None:
        needs = "a group" if isinstance(task, RankingTask) else "several"
        yield "parser", "(on)", f"leaves no columns, and the task needs {needs}: use columns as features"
    if spec.ranks > 1:
        part = "a part of every batch" if isinstance(task, RankingTask) else "one label per sample"
        yield "ranks", spec.ranks, f"share {part}, and {why}: use 1"
    named = spec.features if isinstance(spec.features, list) else []
    if isinstance(spec.features, dict):
        named = [column for group in spec.features.values() for column in group.columns]
    if seen := [name for name in truth_columns(spec.task) if name in named]:
        role = "training.task.group" if isinstance(task, RankingTask) else "one of training.task.columns, which the model learns"
        yield "features", seen[0], f"is {role}: remove it"
    if isinstance(task, RankingTask):
        if spec.downsampling is not None:
            yield "downsampling", "(on)", f"chooses samples one by one, and {why}: leave it out"
        if spec.shuffle == "blocks":
            yield "shuffle", "blocks", f"takes blocks of neighbours, and {why}: use true, which shuffles groups, or false"
