"""Selection: windows of the stream, strategies inside them, training sets on disk."""

from fastpath import Partition
from modyn_dagster.keys import KeyRange
from modyn_dagster.selection.presampling.groups import History
from modyn_dagster.selection.presampling.pool import Columns, Usage, window_of
from modyn_dagster.selection.presampling.selection import Selection, strategy_at, target_size
from modyn_dagster.selection.training_set import TrainingSet, stage_training_set, write_training_set

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
    "target_size",
    "window_of",
    "write_training_set",
]
