"""Classes of Dagster runs, with the limit and the priority of each: ingestion, measuring, training, evaluation, replay, other.

An op says its class in its tags, so that a run is classed by what it executes, whatever launched it.
"""

import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Final, Literal

from modyn_dagster.distributed.opening import are_on_a_cluster
from modyn_dagster.distributed.protocols import Resources
from modyn_dagster.spec.operation import Stage
from modyn_dagster.spec.pipeline import PipelineSpec

RunClassName = Literal["ingestion", "measuring", "evaluation", "training", "replay", "other"]

#: Class of an op, and of the runs that execute it.
CLASS_TAG: Final = "modyn/class"
#: Replays of a run: ``<pipeline>:<name>:<seed>``.
REPLAY_TAG: Final = "modyn/replay"
#: Pipeline of an op that replays, and its seed where the run names none.
PIPELINE_TAG: Final = "modyn/pipeline"
SEED_TAG: Final = "modyn/seed"
#: Cores, GPUs and bytes that an op reserves, as JSON, and of a run the largest number of each; absent where none are named.
RESOURCES_TAG: Final = "modyn/resources"


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

#: Stages that a Dagster run of a class goes through: a training is evaluated in the same process, a replay does everything.
STAGES: Final[Mapping[str, tuple[Stage, ...]]] = {
    "training": ("train", "evaluate"),
    "evaluation": ("evaluate",),
    "measuring": ("measure",),
    "replay": ("train", "measure", "evaluate"),
}

#: A run of several classes counts as the first of these: the one that takes longest.
_LONGEST_FIRST: Final[tuple[RunClassName, ...]] = ("replay", "training", "evaluation", "measuring", "ingestion")


def class_tags(name: RunClassName) -> dict[str, str]:
    """Tags of an op of a class."""
    return {CLASS_TAG: name}


def pipeline_tags(name: RunClassName, pipeline: PipelineSpec) -> dict[str, str]:
    """Tags of an op of a class that works for a pipeline, with what it reserves."""
    wanted = share_of(STAGES[name], pipeline)
    return class_tags(name) | ({} if wanted is None else {RESOURCES_TAG: json.dumps(asdict(wanted))})


def share_of(stages: Collection[Stage], pipeline: PipelineSpec) -> Resources | None:
    """Share of a machine that a run over some stages reserves; None where ``resources`` of its pipeline name none of them.

    Ranks on a cluster (``MODYN_RANKS``) reserve theirs when they start, so the run does not reserve it a second time.
    """
    elsewhere = are_on_a_cluster(os.environ.get("MODYN_RANKS", ""))
    return pipeline.resources.of(stages, pipeline.threads, pipeline.training.ranks, elsewhere=elsewhere)


def largest(tags: Iterable[str]) -> Resources | None:
    """Largest number of each kind of resource, from tags of ops; None where there are no tags.

    >>> largest(['{"cpus": 4, "gpus": 0, "memory": 0}', '{"cpus": 1, "gpus": 1, "memory": 0}'])
    Resources(cpus=4, gpus=1, memory=0)
    """
    named = [Resources(**json.loads(tag)) for tag in tags]
    return Resources(*(max(getattr(each, kind) for each in named) for kind in ("cpus", "gpus", "memory"))) if named else None


def replay_tags(pipeline: PipelineSpec) -> dict[str, str]:
    """Tags of an op that replays a pipeline."""
    own = {PIPELINE_TAG: pipeline.name, SEED_TAG: str(pipeline.seed)}
    return pipeline_tags("replay", pipeline) | own


def class_of(names: Collection[str]) -> RunClassName:
    """Class of a run, from the classes of its ops.

    >>> class_of(["training", "evaluation"]), class_of([])
    ('training', 'other')
    """
    return next((name for name in _LONGEST_FIRST if name in names), "other")
