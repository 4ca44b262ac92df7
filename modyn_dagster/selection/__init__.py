"""What to train on: windows of the stream, selection inside them, training sets on disk."""

from modyn_dagster.selection.select import Partition, Selection
from modyn_dagster.selection.training_set import TrainingSet, write_training_set
from modyn_dagster.selection.window import KeyRange, window_of

__all__ = ["KeyRange", "Partition", "Selection", "TrainingSet", "window_of", "write_training_set"]
