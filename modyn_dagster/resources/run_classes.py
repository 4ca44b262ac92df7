"""Classes of Dagster runs, with the limit and the priority of each: ingestion, measuring, training, evaluation, replay, other.

An op says its class in its tags, so that a run is classed by what it executes, whatever launched it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

RunClassName = Literal["ingestion", "measuring", "evaluation", "training", "replay", "other"]

#: Class of an op, and of the runs that execute it.
CLASS_TAG: Final = "modyn/class"
#: Replays of a run: ``<pipeline>:<name>:<seed>``.
REPLAY_TAG: Final = "modyn/replay"
#: Pipeline of an op that replays, and its seed where the run names none.
PIPELINE_TAG: Final = "modyn/pipeline"
SEED_TAG: Final = "modyn/seed"


@dataclass(frozen=True, slots=True)
class RunClass:
    """Limit and priority of the runs of a class.

    Attributes:
        limit: most runs of the class at the same time; at least 1.
        priority: of two runs in the queue, the one with the higher number is launched first.
    """

    limit: int
    priority: int


#: Defaults of ``run_coordinator.config.classes`` in `dagster.yaml`. Between two priorities is room for what a sensor asks for.
RUN_CLASSES: Final[Mapping[RunClassName, RunClass]] = {
    "ingestion": RunClass(limit=2, priority=60),
    "measuring": RunClass(limit=2, priority=50),
    "evaluation": RunClass(limit=2, priority=40),
    "training": RunClass(limit=2, priority=30),
    "other": RunClass(limit=4, priority=20),
    "replay": RunClass(limit=2, priority=10),
}

#: A run of several classes counts as the first of these: the one that takes longest.
_LONGEST_FIRST: Final[tuple[RunClassName, ...]] = ("replay", "training", "evaluation", "measuring", "ingestion")


def class_tags(name: RunClassName) -> dict[str, str]:
    """Tags of an op of a class."""
    return {CLASS_TAG: name}


def replay_tags(pipeline: str, seed: int) -> dict[str, str]:
    """Tags of an op that replays a pipeline; ``seed`` is that of its spec."""
    return class_tags("replay") | {PIPELINE_TAG: pipeline, SEED_TAG: str(seed)}


def class_of(names: Collection[str]) -> RunClassName:
    """Class of a run, from the classes of its ops.

    >>> class_of(["training", "evaluation"]), class_of([])
    ('training', 'other')
    """
    return next((name for name in _LONGEST_FIRST if name in names), "other")
