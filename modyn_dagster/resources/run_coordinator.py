"""Dagster's run queue with limits and priorities by class of run, so that production never waits for a replay.

Dagster's own limits the number of all runs together: two replays fill it, and a new batch waits for them. This one tags what is
submitted, by sensors, backfills and the pages alike, with its class, and limits each class. `dagster.yaml` names it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, Self, cast

import dagster as dg

from modyn_dagster.errors import ConfigError
from modyn_dagster.resources.run_classes import (
    CLASS_TAG,
    PIPELINE_TAG,
    REPLAY_TAG,
    RESOURCES_TAG,
    RUN_CLASSES,
    SEED_TAG,
    RunClass,
    RunClassName,
    class_of,
    largest,
)

#: Dagster's tags: the priority of a run in the queue, and the sensor that asked for it.
_PRIORITY_TAG: Final = "dagster/priority"
_SENSOR_TAG: Final = "dagster/sensor_name"
#: What a sensor asks for comes before what a person launches in the same class, such as a backfill over all triggers.
_SENSOR_FIRST: Final = 5
#: Room for runs that no queue started, such as replays of the command line: Dagster counts them, and also killed ones.
_UNQUEUED_RUNS: Final = 1_000
#: An empty queue costs a query; a file that arrives waits for two looks, one for its ingestion and one for the training.
_DEQUEUE_SECONDS: Final = 0.5


class FairRunCoordinator(dg.QueuedRunCoordinator[dg.DagsterInstance]):
    """Queues runs as Dagster's queued coordinator does, with a limit and a priority for each class of run.

    The limit of all runs together exceeds the sum of those of the classes, so no class can use up the room of another one.
    One replay, identified by pipeline, name and seed, runs once at a time.

    Attributes:
        classes: limit and priority of every class.
        dequeue_interval_seconds: pause between two looks at the queue; Dagster's own coordinator knows whole seconds only.
    """

    def __init__(
        self,
        classes: Mapping[RunClassName, RunClass] = RUN_CLASSES,
        tag_concurrency_limits: Sequence[Mapping[str, Any]] | None = None,
        dequeue_interval_seconds: float = _DEQUEUE_SECONDS,
        **options: Any,
    ) -> None:
        if not dequeue_interval_seconds > 0:
            field = "run_coordinator.config.dequeue_interval_seconds"
            raise ConfigError("dagster.yaml", field, dequeue_interval_seconds, "must be above 0")
        self._dequeue_seconds = dequeue_interval_seconds
        self.classes = dict(RUN_CLASSES) | dict(classes)
        for name, each in self.classes.items():
            if each.limit < 1:
                field = f"run_coordinator.config.classes.{name}.limit"
                raise ConfigError("dagster.yaml", field, each.limit, "must be at least 1")
        super().__init__(
            max_concurrent_runs=sum(each.limit for each in self.classes.values()) + _UNQUEUED_RUNS,
            tag_concurrency_limits=[*_limits(self.classes), *(tag_concurrency_limits or [])],
            **options,
        )

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        """In `dagster.yaml`, below ``run_coordinator.config``: Dagster's fields but the limit of all runs, and ``classes``."""
        theirs = cast(Mapping[str, Any], super().config_type())
        kept = {name: field for name, field in theirs.items() if name != "max_concurrent_runs"}
        return kept | {
            "dequeue_interval_seconds": dg.Field(float, default_value=_DEQUEUE_SECONDS),
            "classes": dg.Field({name: _class_field(default) for name, default in RUN_CLASSES.items()}),
        }

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Mapping[str, Any]) -> Self:
        """Build the coordinator from its part of `dagster.yaml`."""
        classes = {name: RunClass(**fields) for name, fields in config_value["classes"].items()}
        return cls(**{**config_value, "classes": classes, "inst_data": inst_data})

    @property
    def dequeue_interval_seconds(self) -> float:  # type: ignore[override]
        """Pause between two looks at the queue, for Dagster's daemon."""
        return self._dequeue_seconds

    def get_run_queue_config(self) -> Any:
        """Limits of the queue, for Dagster's daemon and pages.

        Raises:
            ConfigError: `dagster.yaml` also sets limits under ``concurrency.runs``, which Dagster would use instead of these.
        """
        others = self._instance.get_settings("concurrency").get("runs", {})
        for name in ("max_concurrent_runs", "tag_concurrency_limits"):
            if name in others:
                rule = "limits of classes of runs stand in run_coordinator.config.classes alone; remove this one"
                raise ConfigError("dagster.yaml", f"concurrency.runs.{name}", others[name], rule)
        return super().get_run_queue_config()

    def submit_run(self, context: Any) -> dg.DagsterRun:
        """Tag a run with its class, its replay and its priority, and queue it."""
        self._instance.add_run_tags(context.dagster_run.run_id, self.tags_of(context.dagster_run))
        return super().submit_run(context)

    def tags_of(self, run: dg.DagsterRun) -> dict[str, str]:
        """Tags of a run by the ops it executes; a priority that the run already has is kept."""
        ops = self._ops(run)
        name = class_of([tags.get(CLASS_TAG, "other") for tags in ops.values()])
        priority = self.classes[name].priority + _SENSOR_FIRST * (_SENSOR_TAG in run.tags)
        found = {_PRIORITY_TAG: run.tags.get(_PRIORITY_TAG, str(priority)), CLASS_TAG: name}
        replays = ", ".join(_replays(ops, run.run_config))
        wanted = largest(tags[RESOURCES_TAG] for tags in ops.values() if RESOURCES_TAG in tags)
        found |= {} if wanted is None else {RESOURCES_TAG: json.dumps(asdict(wanted))}
        return found | ({REPLAY_TAG: replays} if replays else {})

    def _ops(self, run: dg.DagsterRun) -> dict[str, Mapping[str, str]]:
        """Tags of the ops that a run executes, by name."""
        if run.execution_plan_snapshot_id is None:
            return {}
        plan = self._instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id)
        return {step.key: step.tags or {} for step in plan.steps if step.key in plan.step_keys_to_execute}


def _class_field(default: RunClass) -> dg.Field:
    return dg.Field({name: dg.Field(dg.IntSource, default_value=value) for name, value in asdict(default).items()})


def _limits(classes: Mapping[RunClassName, RunClass]) -> list[dict[str, Any]]:
    """Limits of tags, as Dagster's queue has them."""
    by_class = [{"key": CLASS_TAG, "value": name, "limit": each.limit} for name, each in classes.items()]
    return [*by_class, {"key": REPLAY_TAG, "value": {"applyLimitPerUniqueValue": True}, "limit": 1}]


def _replays(ops: Mapping[str, Mapping[str, str]], run_config: Mapping[str, Any]) -> Iterator[str]:
    """Pipeline, name and seed of every replay of a run; an absent seed is the pipeline's."""
    for op, tags in ops.items():
        if tags.get(CLASS_TAG) == "replay":
            options = run_config.get("ops", {}).get(op, {}).get("config", {})
            seed = options.get("seed")
            yield f"{tags[PIPELINE_TAG]}:{options.get('name', '')}:{tags[SEED_TAG] if seed is None else seed}"
