"""Dynamic partitions: ``batches/<dataset>`` and ``triggers/<pipeline>``."""

from collections.abc import Sequence
from typing import Final

import dagster as dg

from modyn_dagster.errors import ConfigError

#: Dagster's pages write ranges and lists of keys with these.
_REFUSED: Final = (",", "...", "|")


def batches_of(dataset: str) -> dg.DynamicPartitionsDefinition:
    """One partition per batch of a dataset, in announcement order."""
    return dg.DynamicPartitionsDefinition(name=f"batches/{dataset}")


def triggers_of(pipeline: str) -> dg.DynamicPartitionsDefinition:
    """One partition per trigger of a pipeline, of live runs and replays alike."""
    return dg.DynamicPartitionsDefinition(name=f"triggers/{pipeline}")


def add_partitions(instance: dg.DagsterInstance, partitions: dg.DynamicPartitionsDefinition, keys: Sequence[str]) -> None:
    """Add the keys an instance does not know yet, in the order given."""
    fresh = unknown_partitions(instance, partitions, keys)
    if fresh:
        instance.add_dynamic_partitions(str(partitions.name), fresh)


def unknown_partitions(
    instance: dg.DagsterInstance, partitions: dg.DynamicPartitionsDefinition, keys: Sequence[str]
) -> list[str]:
    """The keys an instance does not know yet; ``ConfigError`` for one that its pages could not select."""
    known = set(instance.get_dynamic_partitions(str(partitions.name)))
    fresh = [key for key in keys if key not in known]
    for key in fresh:
        for text in _REFUSED:
            if text in key:
                raise ConfigError(str(partitions.name), "partition key", key, f"must not hold {text!r}")
    return fresh
