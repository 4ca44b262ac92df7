"""Production under an operator's commands and under faults, through the real sensors and jobs."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from modyn_dagster.assets.metadata.entries import DETAILS
from modyn_dagster.catalog.notifications import notifications
from modyn_dagster.catalog.runs import RunRow, list_runs
from modyn_dagster.pipeline.decide.live_run import resume_run, stop_run
from tests.dagster.face import Face, deliver, error_of
from tests.dagster.test_production import TRIGGERING, produce, run_of, take_in, triggers, unfinished_run
from tests.pipeline import hooks
from tests.projects.tiny import amount, batch_text, write_pipeline

NOTIFYING = "notifying__by_amount"


@pytest.fixture(autouse=True)
def heard() -> Iterator[list[Any]]:
    yield hooks.HEARD
    hooks.HEARD.clear()
    hooks.RAISES.clear()


def reloaded(face: Face, **fields: Any) -> Face:
    """The same place after the pipeline's file was changed and its code location loaded again."""
    write_pipeline(face.settings.project, amount(**({"every": 60} | fields)))
    face.platform.__dict__["project"] = type(face.platform).open(face.settings).project
    return Face(face.settings, face.instance)


def job(face: Face, name: str, **ops: Any) -> dg.ExecuteInProcessResult:
    config = {"ops": {op: {"config": values} for op, values in ops.items()}}
    return face.defs.resolve_job_def(name).execute_in_process(config, instance=face.instance, raise_on_error=False)


def runs(face: Face) -> list[RunRow]:
    with face.platform.transaction() as conn:
        return list_runs(conn, "by_amount")


def test_train_now_makes_a_trigger_that_the_sensor_has_trained(face: Face, days: list[str]) -> None:
    take_in(face)
    cursor, _ = produce(face)
    deliver(face.settings.project, "day_03", batch_text(3))
    take_in(face)
    result = job(face, "trigger_now__by_amount", by_amount__trigger_now={"note": "ann"})
    assert result.success, error_of(result)
    [request] = face.tick(TRIGGERING, cursor).requests
    newest = triggers(face)[-1]
    assert (request.job_name, request.partition_key) == ("train__by_amount", newest.partition_key)
    assert (newest.reason, newest.manual) == ("manual: ann", True)
    trained = face.launch(request)
    assert trained.success, error_of(trained)
    metadata = face.materializations("by_amount", "model")[newest.partition_key]
    assert (metadata["Reason"], metadata["samples"]) == ("manual: ann", 40)
    nothing = job(face, "trigger_now__by_amount")
    assert "nothing new to train on since its last trigger" in error_of(nothing)


def test_while_a_trigger_is_unfinished_train_now_says_so(face: Face, days: list[str]) -> None:
    take_in(face)
    face.tick(TRIGGERING)
    assert "has an unfinished trigger" in error_of(job(face, "trigger_now__by_amount"))
    assert len(triggers(face)) == 1


@pytest.mark.soak("screens")
def test_a_replay_repeats_manual_triggers_by_its_run_configuration(face: Face, days: list[str]) -> None:
    take_in(face)
    produce(face)
    deliver(face.settings.project, "day_03", batch_text(3))
    take_in(face)
    job(face, "trigger_now__by_amount")
    produce(face)
    live = run_of(face)
    config = {"manual_of": live.id, "costs_from": live.id}
    result = face.materialize(("by_amount", "replay"), batches=("day_00", "day_03"), config=config)
    assert result.success, error_of(result)
    reasons = {key: shown["Reason"] for key, shown in face.materializations("by_amount", "model").items()}
    assert sorted(reasons.values()) == sorted(["60 samples", "60 samples", "manual"] * 2)


@pytest.mark.soak("screens")
def test_a_sensor_that_was_off_for_a_week_makes_up_for_it_in_order(face: Face, days: list[str]) -> None:
    take_in(face)
    cursor, _ = produce(face)
    for day in range(3, 10):
        deliver(face.settings.project, f"day_{day:02d}", batch_text(day))
    take_in(face)
    asked: list[dg.RunRequest] = []
    while (ticked := face.tick(TRIGGERING, cursor)).requests:
        asked += ticked.requests
        assert len(ticked.requests) == 1, "a run has at most one unfinished trigger"
        result = face.launch(ticked.requests[0])
        assert result.success, error_of(result)
        cursor = ticked.cursor
    made = triggers(face)
    assert [row.key for row in made] == [((n * 60 - 1) // 40 << 32) + (n * 60 - 1) % 40 for n in range(1, 7)]
    assert [request.partition_key for request in asked if request.job_name == "train__by_amount"] == [made[2].partition_key]
    assert len({row.dagster_run_id for row in made[2:]}) == 1, "one run takes all of them, one after the other"
    assert "every model is judged" in str(ticked.skipped)


@pytest.mark.soak("screens")
def test_a_week_in_which_its_run_was_under_way_or_forgotten_loses_no_trigger(face: Face, days: list[str]) -> None:
    """Dagster has forgotten the runs of before: their history was wiped, or is another instance's."""
    take_in(face)
    [request] = face.tick(TRIGGERING).requests
    going = unfinished_run(face, {**request.tags, "dagster/partition": str(request.partition_key)})
    assert face.tick(TRIGGERING).requests == []
    face.instance.delete_run(going.run_id)
    [again] = face.tick(TRIGGERING).requests
    assert again.run_key == request.run_key
    with dg.DagsterInstance.ephemeral() as other:
        moved = Face(face.settings, other)
        [there] = moved.tick(TRIGGERING, "").requests
        assert there.partition_key == request.partition_key
        assert moved.launch(there).success
    assert [row.state for row in triggers(face)] == ["trained", "trained"]


@pytest.mark.soak("screens")
def test_a_changed_spec_begins_a_new_run_after_the_unfinished_trigger_and_the_old_one_stays_readable(
    face: Face, days: list[str]
) -> None:
    take_in(face)
    [request] = face.tick(TRIGGERING).requests
    changed = reloaded(face, every=50)
    [same] = changed.tick(TRIGGERING).requests
    assert same.run_key == request.run_key, "what was decided is trained under the spec that decided it"
    assert changed.launch(same).success
    [following] = changed.tick(TRIGGERING).requests
    assert changed.launch(following).success
    old, new = runs(changed)
    assert (old.state, new.state, new.origin) == ("ended", "active", old.cursor)
    assert following.partition_key == "000002-000000"
    shown = changed.materializations("by_amount", "model")
    assert {key: metadata[DETAILS]["run"] for key, metadata in shown.items()} == {
        "000001-000000": "live run 1 of by_amount",
        "000002-000000": "live run 2 of by_amount",
    }
    again = changed.materialize(("by_amount", "model"), partition="000001-000000")
    assert again.success, error_of(again)


@pytest.mark.soak("screens")
@pytest.mark.parametrize("on_failure", ["stop", "continue"])
def test_on_failure(face: Face, days: list[str], on_failure: str) -> None:
    changed = reloaded(face, on_failure=on_failure, max_attempts=2)
    take_in(changed)
    for attempt in (1, 2):
        [request] = changed.tick(TRIGGERING).requests
        assert request.tags["modyn/attempt"] == str(attempt)
        changed.instance.report_run_failed(unfinished_run(changed, request.tags))
    after = changed.tick(TRIGGERING)
    if on_failure == "stop":
        assert (after.requests, [row.state for row in triggers(changed)]) == ([], ["failed"])
        resume_run(changed.platform, run_of(changed))
        [request] = changed.tick(TRIGGERING).requests
        assert request.tags["modyn/attempt"] == "3"
    else:
        [request] = after.requests
    assert changed.launch(request).success
    produce(changed)
    states = ["failed", "trained"] if on_failure == "continue" else ["trained", "trained"]
    assert [row.state for row in triggers(changed)] == states
    # The window of the next trigger begins after the last trained one.
    samples = [shown["samples"] for shown in changed.materializations("by_amount", "model").values()]
    assert samples == ([120] if on_failure == "continue" else [60, 60])


@pytest.mark.soak("screens")
def test_a_stopped_pipeline_asks_for_nothing_until_it_is_resumed(face: Face, days: list[str]) -> None:
    take_in(face)
    [request] = face.tick(TRIGGERING).requests
    stop_run(face.platform, run_of(face), at_once=True)
    late = face.launch(request)
    assert "attempt 1 is no longer the current one" in error_of(late)
    ticked = face.tick(TRIGGERING)
    assert ticked.requests == []
    assert "modyn-dagster pipeline resume by_amount" in str(ticked.skipped)
    resume_run(face.platform, run_of(face))
    _, asked = produce(face)
    assert asked[0].run_key == str(request.run_key)[:-1] + "2"
    assert [row.state for row in triggers(face)] == ["trained", "trained"]


@pytest.mark.soak("screens")
def test_the_hook_is_told_by_a_run_of_its_own_once(face: Face, days: list[str], heard: list[Any]) -> None:
    changed = reloaded(face, notify={"hook": "tests.pipeline.hooks:hook", "max_run_time": "5m"})
    assert changed.defs.resolve_job_def("notify__by_amount").run_tags["dagster/max_runtime"] == "300"
    first = changed.tick(NOTIFYING)
    assert (first.requests, "from now on" in str(first.skipped)) == ([], True)
    take_in(changed)
    changed.tick(TRIGGERING)
    [request] = changed.tick(NOTIFYING, first.cursor).requests
    going = unfinished_run(changed, request.tags)
    assert changed.tick(NOTIFYING, first.cursor).requests == []
    changed.instance.delete_run(going.run_id)
    request = dg.RunRequest(run_key=None, run_config=request.run_config, tags=request.tags, job_name="notify__by_amount")
    assert changed.launch(request).success
    assert [(event.kind, event.trigger) for event in heard] == [("trigger", "000001-000000")]
    assert "nothing to tell" in str(changed.tick(NOTIFYING, first.cursor).skipped)
    assert changed.tick(TRIGGERING).requests[0].job_name == "train__by_amount"


@pytest.mark.soak("screens")
def test_a_hook_that_raises_is_asked_for_again_under_another_run_key(face: Face, days: list[str], heard: list[Any]) -> None:
    changed = reloaded(face, notify={"hook": "tests.pipeline.hooks:hook"})
    cursor = changed.tick(NOTIFYING).cursor
    take_in(changed)
    changed.tick(TRIGGERING)
    hooks.RAISES.append(ConnectionError("out"))
    keys = []
    while requests := changed.tick(NOTIFYING, cursor).requests:
        keys.append(requests[0].run_key)
        request = dg.RunRequest(run_config=requests[0].run_config, tags=requests[0].tags, job_name="notify__by_amount")
        assert changed.launch(request).success, "a hook disturbs nothing, not even the run that calls it"
    assert len(set(keys)) == len(keys) == 3
    assert heard == []


@pytest.mark.soak("screens")
def test_a_channel_that_is_added_is_told_of_what_happens_from_then_on(face: Face, days: list[str], heard: list[Any]) -> None:
    hook, command = {"hook": "tests.pipeline.hooks:hook"}, {"command": ["true"]}
    changed = reloaded(face, notify=hook)
    before = datetime.now(UTC).isoformat()
    take_in(changed)
    changed.tick(TRIGGERING)
    both = reloaded(changed, notify=hook | command)
    # The cursor of an earlier version was a single time, that of the hook.
    [request] = (ticked := both.tick(NOTIFYING, before)).requests
    launched = dg.RunRequest(run_config=request.run_config, tags=request.tags, job_name="notify__by_amount")
    assert both.launch(launched).success
    assert [event.trigger for event in heard] == ["000001-000000"]
    assert "nothing to tell" in str(both.tick(NOTIFYING, ticked.cursor).skipped)
    alone = reloaded(both, notify=command)
    assert "nothing to tell" in str(alone.tick(NOTIFYING, ticked.cursor).skipped)
    with alone.platform.transaction() as conn:
        assert list(notifications(conn, 1)) == [("trigger 0", "hook")]


@pytest.mark.soak("screens")
def test_a_person_may_name_one_moment_for_all_channels(face: Face, days: list[str], heard: list[Any]) -> None:
    changed = reloaded(face, notify={"hook": "tests.pipeline.hooks:hook", "command": ["true"]})
    take_in(changed)
    changed.tick(TRIGGERING)
    assert job(changed, "notify__by_amount", by_amount__notify={"since": "2026-01-01"}).success
    with changed.platform.transaction() as conn:
        assert set(notifications(conn, 1)) == {("trigger 0", "hook"), ("trigger 0", "command")}


def test_a_pipeline_without_a_hook_has_no_such_sensor(face: Face, project: Path) -> None:
    names = {sensor.name for sensor in face.defs.sensors or []}
    assert NOTIFYING not in names
    jobs = {job.name for job in face.defs.jobs or []}
    assert "trigger_now__by_amount" in jobs
    assert "notify__by_amount" not in jobs
