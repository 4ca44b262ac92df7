"""What to train on: windows of the stream, selection inside them, training sets on disk."""

from fastpath import Partition
from modyn_dagster.keys import KeyRange
from modyn_dagster.selection.select import Selection
from modyn_dagster.selection.training_set import TrainingSet, stage_training_set, write_training_set
from modyn_dagster.selection.window import window_of

__all__ = ["KeyRange", "Partition", "Selection", "TrainingSet", "stage_training_set", "window_of", "write_training_set"]
