"""Classes of runs: how what is submitted is tagged, and that no class of runs waits for another one.

The daemon's choice of what to launch is Dagster's own, with the shipped `dagster.yaml`, over runs of real definitions.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pytest
import yaml

# What the daemon calls and is made of; there are no public names for it.
from dagster._core.instance.types import InstanceType
from dagster._core.launcher import DefaultRunLauncher
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.run_coordinator import QueuedRunCoordinator, SubmitRunContext
from dagster._core.storage.event_log import InMemoryEventLogStorage
from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager
from dagster._core.storage.root import LocalArtifactStorage
from dagster._core.storage.runs import InMemoryRunStorage
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon
from dagster._serdes import ConfigurableClassData
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modyn_dagster.errors import ConfigError
from modyn_dagster.resources.run_classes import RUN_CLASSES, RunClass, RunClassName
from modyn_dagster.resources.run_coordinator import FairRunCoordinator
from tests.dagster.face import Face
from tests.dagster.test_measuring import DRIFT
from tests.examples import examples
from tests.projects.tiny import DATASET, ROOT, amount, triggered, write_pipeline, write_project

ORIGIN: Final = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("modyn_dagster.definitions"), "__repository__")
SHIPPED: Final = yaml.safe_load((ROOT / "dagster.yaml").read_text())
PIPELINES: Final = ("first", "second", "third", "drifting")


def coordinator(config: Mapping[str, Any]) -> FairRunCoordinator:
    """As an instance makes it from its `dagster.yaml`."""
    named = SHIPPED["run_coordinator"]
    made = ConfigurableClassData(named["module"], named["class"], yaml.safe_dump(dict(config))).rehydrate(QueuedRunCoordinator)
    assert isinstance(made, FairRunCoordinator)
    return made


def instance_of(folder: Path, concurrency: Mapping[str, Any]) -> dg.DagsterInstance:
    return dg.DagsterInstance(
        instance_type=InstanceType.EPHEMERAL,
        local_artifact_storage=LocalArtifactStorage(str(folder)),
        run_storage=InMemoryRunStorage(),
        event_storage=InMemoryEventLogStorage(),
        compute_log_manager=NoOpComputeLogManager(),
        run_coordinator=coordinator(SHIPPED["run_coordinator"]["config"]),
        run_launcher=DefaultRunLauncher(),
        settings={"concurrency": dict(concurrency)},
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    pipelines = [*(amount(name, every=60) for name in PIPELINES[:3]), triggered(PIPELINES[3], DRIFT)]
    return write_project(tmp_path / "project", pipelines)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """Dagster's instance in memory with the queue of the shipped settings."""
    with instance_of(tmp_path, SHIPPED["concurrency"]) as instance:
        yield instance


class Queue(QueuedRunCoordinatorDaemon):
    """The part of the daemon that launches what waits, up to its choice of runs."""

    def launch(self, instance: dg.DagsterInstance) -> list[str]:
        """Let every run begin that may, and give their ids in order; none of them ever ends."""
        chosen = self._get_runs_to_dequeue(instance, instance.get_concurrency_config(), fixed_iteration_time=None)
        for run in chosen:
            instance.report_dagster_event(dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, run.job_name), run.run_id)
        return [run.run_id for run in chosen]


def submit(
    face: Face,
    job: str | None = None,
    *assets: str,
    config: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
) -> str:
    """Submit a run of a job, or of assets as the pages do; its id."""
    if job is None:
        selection = [dg.AssetKey(asset.split("/")) for asset in assets]
        made = face.defs.resolve_implicit_global_asset_job_def().get_subset(asset_selection=set(selection))
    else:
        made = face.defs.resolve_job_def(job)
    run = face.instance.create_run_for_job(
        made,
        run_config=dict(config or {}),
        tags={**made.run_tags, **(tags or {})},
        asset_selection=None if job else frozenset(selection),
        remote_job_origin=RemoteJobOrigin(ORIGIN, made.name),
    )
    face.instance.run_coordinator.submit_run(SubmitRunContext(run, workspace=None))  # type: ignore[arg-type]  # nothing asks it
    return run.run_id


def tags_of(face: Face, run_id: str) -> Mapping[str, str]:
    run = face.instance.get_run_by_id(run_id)
    assert run is not None
    assert run.status == dg.DagsterRunStatus.QUEUED
    return run.tags


def replay_config(pipeline: str, **options: Any) -> dict[str, Any]:
    return {"ops": {f"{pipeline}__replay": {"config": options}}}


def test_a_run_is_tagged_with_the_class_of_what_it_executes(face: Face) -> None:
    table: list[tuple[RunClassName, str | None, list[str]]] = [
        ("ingestion", None, [f"{DATASET}/samples"]),
        ("other", None, [f"{DATASET}/comparison"]),
        ("evaluation", None, ["first/evaluation"]),
        ("training", None, ["first/training_set"]),
        ("measuring", None, ["drifting/measurement"]),
        ("replay", None, [f"{DATASET}/samples", "first/replay"]),
        ("training", "train__first", []),
        ("evaluation", "evaluate__first", []),
        ("measuring", "measure__drifting", []),
        ("other", "trigger_now__first", []),
        ("other", "retention", []),
    ]
    for name, job, assets in table:
        tags = tags_of(face, submit(face, job, *assets, tags={"modyn/class": "ingestion"}))
        assert (tags["modyn/class"], tags["dagster/priority"]) == (name, str(RUN_CLASSES[name].priority)), (job, assets)
        assert ("modyn/replay" in tags) == (name == "replay")


def test_a_replay_is_known_by_pipeline_name_and_seed(face: Face) -> None:
    named = submit(face, None, "first/replay", config=replay_config("first", name="mine", seed=3))
    plain = submit(face, None, "first/replay")
    both = submit(face, None, "first/replay", "second/replay", config=replay_config("second", seed=0))
    shown = [tags_of(face, run_id)["modyn/replay"] for run_id in (named, plain, both)]
    assert shown == ["first:mine:3", "first::7", "first::7, second::0"]


def test_a_run_is_tagged_with_the_largest_resources_of_its_ops(face: Face) -> None:
    sized = amount("sized", threads=2, resources={"train": {"memory": "1GB"}, "measure": {"cpus": 3}})
    write_pipeline(face.settings.project, sized)
    table: list[tuple[list[str], dict[str, int] | None]] = [
        (["sized/model"], {"cpus": 2, "gpus": 0, "memory": 10**9}),
        (["sized/evaluation"], None),
        (["sized/evaluation", "sized/replay"], {"cpus": 3, "gpus": 0, "memory": 10**9}),
        (["first/replay"], None),
    ]
    for assets, wanted in table:
        tag = tags_of(face, submit(face, None, *assets)).get("modyn/resources")
        assert (tag and json.loads(tag)) == wanted, assets


def test_what_a_sensor_asked_for_comes_first_in_its_class_and_a_priority_of_ones_own_is_kept(face: Face) -> None:
    by_hand = tags_of(face, submit(face, "train__first"))
    by_sensor = tags_of(face, submit(face, "train__first", tags={"dagster/sensor_name": "triggering__first"}))
    own = tags_of(face, submit(face, "train__first", tags={"dagster/priority": "-3"}))
    assert [int(tags["dagster/priority"]) for tags in (by_hand, by_sensor, own)] == [30, 35, -3]


def test_production_waits_for_no_replay_and_ingestion_for_nobody(face: Face) -> None:
    queue = Queue(interval_seconds=1)
    replays = [submit(face, None, f"{pipeline}/replay") for pipeline in PIPELINES]
    hanging = submit(face, "train__first")
    assert set(queue.launch(face.instance)) == {*replays[:2], hanging}
    training = submit(face, "train__second", tags={"dagster/sensor_name": "triggering__second"})
    # Each waits for the pool of its pipeline; they stand before the samples in the queue.
    waiting = [submit(face, "train__first") for _ in range(3)]
    samples = submit(face, None, f"{DATASET}/samples")
    assert queue.launch(face.instance) == [samples, training]
    evaluation = submit(face, "evaluate__third")
    assert queue.launch(face.instance) == [evaluation]
    assert all(tags_of(face, run_id) for run_id in [*waiting, *replays[2:]])


def test_one_replay_runs_once_at_a_time_and_a_grid_over_one_pipeline_is_parallel(face: Face) -> None:
    same = [submit(face, None, "first/replay") for _ in range(2)]
    other = submit(face, None, "first/replay", config=replay_config("first", seed=1))
    assert set(Queue(interval_seconds=1).launch(face.instance)) == {same[0], other}


def test_runs_that_no_queue_started_take_no_room(face: Face) -> None:
    job = face.defs.resolve_job_def("retention")
    for _ in range(30):
        face.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    samples = submit(face, None, f"{DATASET}/samples")
    assert Queue(interval_seconds=1).launch(face.instance) == [samples]


def test_the_shipped_settings_are_the_defaults_and_every_class_has_a_limit() -> None:
    classes = SHIPPED["run_coordinator"]["config"]["classes"]
    assert {name: RunClass(**fields) for name, fields in classes.items()} == RUN_CLASSES
    assert coordinator({}).classes == RUN_CLASSES
    assert coordinator({}).dequeue_interval_seconds == SHIPPED["run_coordinator"]["config"]["dequeue_interval_seconds"] == 0.5
    changed = coordinator({"classes": {"replay": {"limit": 5}}, "dequeue_interval_seconds": 9})
    assert changed.classes == {**RUN_CLASSES, "replay": RunClass(limit=5, priority=10)}
    assert changed.dequeue_interval_seconds == 9


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limits=st.fixed_dictionaries({name: st.integers(1, 40) for name in RUN_CLASSES}))
def test_the_limit_of_all_runs_exceeds_the_sum_of_those_of_the_classes(
    instance: dg.DagsterInstance, limits: Mapping[str, int]
) -> None:
    config = {"classes": {name: {"limit": limit} for name, limit in limits.items()}}
    made = coordinator(config | {"tag_concurrency_limits": [{"key": "mine", "limit": 1}]})
    made.register_instance(instance)
    queue = made.get_run_queue_config()
    by_class = {limit["value"]: limit["limit"] for limit in queue.tag_concurrency_limits if limit["key"] == "modyn/class"}
    assert by_class == limits
    assert queue.max_concurrent_runs > sum(limits.values())
    assert Counter(limit["key"] for limit in queue.tag_concurrency_limits)["mine"] == 1


def test_a_limit_of_nothing_and_limits_in_two_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"classes\.ingestion\.limit: must be at least 1 \(found 0\)"):
        coordinator({"classes": {"ingestion": {"limit": 0}}})
    with pytest.raises(ConfigError, match=r"dequeue_interval_seconds: must be above 0 \(found 0"):
        coordinator({"dequeue_interval_seconds": 0})
    concurrency = {**SHIPPED["concurrency"], "runs": {"max_concurrent_runs": 2}}
    with (
        instance_of(tmp_path, concurrency) as instance,
        pytest.raises(ConfigError, match=r"concurrency\.runs\.max_concurrent_runs"),
    ):
        instance.get_concurrency_config()


def test_a_projects_own_settings_with_dagsters_queue_still_load(tmp_path: Path) -> None:
    own = {"module": "dagster._core.run_coordinator", "class": "QueuedRunCoordinator", "config": {"dequeue_interval_seconds": 1}}
    concurrency = {**SHIPPED["concurrency"], "runs": {"max_concurrent_runs": 2}}
    with dg.instance_for_test(overrides={"run_coordinator": own, "concurrency": concurrency}) as instance:
        queue = instance.get_concurrency_config().run_queue_config
        assert queue is not None
        assert queue.max_concurrent_runs == 2
