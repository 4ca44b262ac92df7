"""What to train on: windows of the stream, selection inside them, training sets on disk."""

from fastpath import Partition
from modyn_dagster.keys import KeyRange
from modyn_dagster.selection.groups import History
from modyn_dagster.selection.pool import Columns
from modyn_dagster.selection.select import Selection, strategy_at
from modyn_dagster.selection.training_set import TrainingSet, stage_training_set, write_training_set
from modyn_dagster.selection.usage import Usage
from modyn_dagster.selection.window import window_of

__all__ = [
    "Columns",
    "History",
    "KeyRange",
    "Partition",
    "Selection",
    "TrainingSet",
    "Usage",
    "stage_training_set",
    "strategy_at",
    "window_of",
    "write_training_set",
]
