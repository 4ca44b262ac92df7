"""The sensors and what they launch, tick by tick, as the daemon would."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg
import pytest

from modyn_dagster.catalog.runs import RunRow, live_run
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers
from tests.dagster.face import Face, Ticked, deliver, error_of
from tests.projects.tiny import DATASET, ROOT, batch_text

NEW_DATA = "new_data__tiny"
TRIGGERING = "triggering__by_amount"
GOING = {"modyn/dataset": DATASET, "modyn/batch": "day_00"}


def run_of(face: Face) -> RunRow:
    with face.platform.transaction() as conn:
        run = live_run(conn, "by_amount")
    assert run is not None
    return run


def triggers(face: Face) -> list[TriggerRow]:
    with face.platform.transaction() as conn:
        return list_triggers(conn, run_of(face).id)


def states(face: Face) -> dict[str, str]:
    return {batch.partition_key: batch.state for batch in face.batches(DATASET)}


def take_in(face: Face) -> Ticked:
    """Look twice and ingest what is asked for; the last tick."""
    ticked = face.tick(NEW_DATA, face.tick(NEW_DATA).cursor)
    for request in ticked.requests:
        face.launch(request)
    return ticked


def produce(face: Face, cursor: str | None = None) -> tuple[str | None, list[dg.RunRequest]]:
    """Tick and launch until nothing is asked for; the last cursor, and what was asked for."""
    asked: list[dg.RunRequest] = []
    while (ticked := face.tick(TRIGGERING, cursor)).requests:
        for request in ticked.requests:
            result = face.launch(request)
            assert result.success, error_of(result)
        asked, cursor = [*asked, *ticked.requests], ticked.cursor
    return ticked.cursor, asked


def unfinished_run(face: Face, tags: Mapping[str, str]) -> dg.DagsterRun:
    """A run that waits in the queue for ever."""
    return face.instance.create_run_for_job(face.defs.resolve_job_def("retention"), tags=dict(tags))


def test_files_are_registered_at_the_second_look_and_asked_for_once(face: Face, days: list[str]) -> None:
    first = face.tick(NEW_DATA)
    assert first.requests == []
    assert "3 may still be written" in str(first.skipped)
    second = face.tick(NEW_DATA, first.cursor)
    assert [request.partition_key for request in second.requests] == days
    assert [request.run_key for request in second.requests] == [f"tiny:{day}:1" for day in days]
    assert list(face.partitions("batches/tiny")) == days
    for request in second.requests:
        assert face.launch(request).success
    assert set(states(face).values()) == {"ingested"}
    assert face.tick(NEW_DATA, second.cursor).requests == []


def test_a_batch_whose_run_is_under_way_is_not_asked_for_again(face: Face, days: list[str]) -> None:
    cursor = face.tick(NEW_DATA).cursor
    unfinished_run(face, GOING)
    asked = face.tick(NEW_DATA, cursor).requests
    assert [request.partition_key for request in asked] == days[1:]


def test_a_batch_left_open_by_a_run_that_ended_is_asked_for_again_after_a_pause(face: Face, days: list[str]) -> None:
    cursor = face.tick(NEW_DATA).cursor
    face.instance.report_run_canceled(unfinished_run(face, GOING))
    first = face.tick(NEW_DATA, cursor)
    assert [request.partition_key for request in first.requests] == days[1:]
    time.sleep(1.1)
    again = face.tick(NEW_DATA, first.cursor).requests
    assert [request.run_key for request in again if request.partition_key == "day_00"] == ["tiny:day_00:2"]


def test_a_bad_batch_goes_red_the_others_go_on_and_repaired_it_comes_back(face: Face, days: list[str]) -> None:
    deliver(face.settings.project, "day_01", "time,x,y,label\nno time,1,2,0\n")
    take_in(face)
    assert states(face) == {day: "failed" if day == "day_01" else "ingested" for day in days}
    deliver(face.settings.project, "day_01", batch_text(1))
    [request] = take_in(face).requests
    assert (request.partition_key, request.run_key) == ("day_01~2", "tiny:day_01~2:1")
    assert list(states(face).items())[-1] == ("day_01~2", "ingested")


@pytest.mark.soak("screens")
def test_one_run_trains_a_trigger_and_the_backlog_after_it(face: Face, days: list[str]) -> None:
    take_in(face)
    ticked = face.tick(TRIGGERING)
    [request] = ticked.requests
    [pending] = triggers(face)
    key = pending.partition_key
    assert (request.job_name, request.partition_key, request.run_key) == ("train__by_amount", key, f"by_amount:{key}:1")
    assert list(face.partitions("triggers/by_amount")) == [key]
    # Asked for again until its run is seen; Dagster drops the same run key.
    assert [again.run_key for again in face.tick(TRIGGERING, ticked.cursor).requests] == [request.run_key]
    result = face.launch(request)
    assert result.success, error_of(result)
    _, asked = produce(face, ticked.cursor)
    assert [row.state for row in triggers(face)] == ["trained", "trained"]
    assert {row.dagster_run_id for row in triggers(face)} == {result.run_id}
    assert [each.job_name for each in asked] == ["evaluate__by_amount"] * len(asked)
    for asset in ("training_set", "model", "evaluation"):
        assert set(face.materializations("by_amount", asset)) == {row.partition_key for row in triggers(face)}


def test_while_a_run_for_the_trigger_is_under_way_nothing_is_asked_for(face: Face, days: list[str]) -> None:
    take_in(face)
    [request] = face.tick(TRIGGERING).requests
    unfinished_run(face, {"dagster/partition": str(request.partition_key)})
    ticked = face.tick(TRIGGERING)
    assert ticked.requests == []
    assert "under way" in str(ticked.skipped)


@pytest.mark.soak("screens")
def test_an_attempt_that_ended_without_a_commit_is_asked_for_again_and_a_late_one_cannot_commit(
    face: Face, days: list[str]
) -> None:
    take_in(face)
    [first] = face.tick(TRIGGERING).requests
    face.instance.report_run_failed(unfinished_run(face, first.tags))
    [second] = face.tick(TRIGGERING).requests
    assert second.run_key == str(first.run_key)[:-1] + "2"
    late = face.launch(first)
    assert "attempt 1 is no longer the current one" in error_of(late)
    assert face.launch(second).success
    assert [(row.state, row.attempt) for row in triggers(face)] == [("trained", 2), ("trained", 1)]


@pytest.mark.soak("screens")
def test_after_the_last_attempt_the_sensor_waits_for_an_operator(face: Face, days: list[str]) -> None:
    take_in(face)
    for _ in range(3):
        [request] = face.tick(TRIGGERING).requests
        face.instance.report_run_failed(unfinished_run(face, request.tags))
    ticked = face.tick(TRIGGERING)
    assert ticked.requests == []
    assert "failed at attempt 3" in str(ticked.skipped)
    assert "modyn-dagster pipeline resume by_amount" in str(face.tick(TRIGGERING).skipped)


def test_new_data_has_all_models_judged_by_one_run_and_then_there_is_nothing_to_do(face: Face, days: list[str]) -> None:
    take_in(face)
    cursor, _ = produce(face)
    deliver(face.settings.project, "day_03", batch_text(3))
    take_in(face)
    ticked = face.tick(TRIGGERING, cursor)
    [request] = ticked.requests
    keys = [row.partition_key for row in triggers(face)]
    assert request.job_name == "evaluate__by_amount"
    assert request.tags["modyn/evaluation"] == "by_amount"
    assert request.run_config == {"ops": {"by_amount__evaluation": {"config": {"triggers": keys}}}}
    result = face.launch(request)
    assert result.success, error_of(result)
    judged = [event.partition for event in result.get_asset_materialization_events()]
    assert judged == keys
    settled = face.tick(TRIGGERING, ticked.cursor)
    assert "every model is judged" in str(settled.skipped)
    assert "nothing new" in str(face.tick(TRIGGERING, settled.cursor).skipped)


@pytest.mark.soak("screens")
def test_an_evaluation_that_fails_is_asked_for_three_times_and_again_when_there_is_new_data(face: Face, days: list[str]) -> None:
    take_in(face)
    cursor, _ = produce(face)
    deliver(face.settings.project, "day_03", batch_text(3))
    take_in(face)
    run_keys: list[str] = []
    for _ in range(3):
        ticked = face.tick(TRIGGERING, cursor)
        [request] = ticked.requests
        going = unfinished_run(face, request.tags)
        assert "under way" in str(face.tick(TRIGGERING, ticked.cursor).skipped)
        face.instance.report_run_failed(going)
        run_keys, cursor = [*run_keys, str(request.run_key)], ticked.cursor
    assert [key[-2:] for key in run_keys] == [":1", ":2", ":3"]
    assert len({key[:-2] for key in run_keys}) == 1
    assert "failed 3 times, see the runs of evaluate__by_amount" in str(face.tick(TRIGGERING, cursor).skipped)
    deliver(face.settings.project, "day_04", batch_text(4))
    take_in(face)
    [request] = face.tick(TRIGGERING, cursor).requests
    assert str(request.run_key).endswith(":1")


@pytest.mark.soak("screens")
def test_an_evaluation_is_not_asked_for_again_after_an_error_that_every_attempt_would_meet(face: Face, days: list[str]) -> None:
    take_in(face)
    cursor, _ = produce(face)
    deliver(face.settings.project, "day_03", batch_text(3))
    take_in(face)
    for path in (face.settings.home / "models").rglob("*"):
        if path.is_file():
            path.write_bytes(b"no model")
    ticked = face.tick(TRIGGERING, cursor)
    [request] = ticked.requests
    result = face.launch(request)
    assert "CorruptFile" in error_of(result)
    assert "failed with an error that every attempt would meet" in str(face.tick(TRIGGERING, ticked.cursor).skipped)
    deliver(face.settings.project, "day_04", batch_text(4))
    take_in(face)
    [request] = face.tick(TRIGGERING, ticked.cursor).requests
    assert str(request.run_key).endswith(":1")


def test_ticks_load_neither_torch_nor_mlflow_into_the_code_server(face: Face, days: list[str]) -> None:
    take_in(face)
    produce(face)
    deliver(face.settings.project, "day_03", batch_text(3))
    take_in(face)
    program = f"""
import sys
import dagster as dg
from modyn_dagster.settings import Settings
from tests.dagster.face import Face

with dg.DagsterInstance.ephemeral() as instance:
    face = Face(Settings.from_environment(), instance)
    face.tick({NEW_DATA!r})
    [request] = face.tick({TRIGGERING!r}).requests
print(request.job_name, *sorted({{"torch", "mlflow", "matplotlib"}} & set(sys.modules)))
"""
    environment = {**os.environ, **face.settings.environment()}
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.stdout == "evaluate__by_amount\n", result.stderr


@pytest.mark.parametrize("sensor", [NEW_DATA, TRIGGERING])
def test_what_another_daemon_asks_for_in_the_middle_of_a_tick_has_not_ended(
    face: Face, days: list[str], monkeypatch: pytest.MonkeyPatch, sensor: str
) -> None:
    if sensor == TRIGGERING:
        take_in(face)
    cursor = face.tick(sensor).cursor
    [request, *_] = face.tick(sensor, cursor).requests
    tags = {**request.tags, "dagster/partition": str(request.partition_key)}
    asked: list[dg.DagsterRun] = []

    def meanwhile(look: Callable[..., Any]) -> Callable[..., Any]:
        def looked(*arguments: Any, **options: Any) -> Any:
            found = look(*arguments, **options)
            if not asked:
                asked.append(unfinished_run(face, tags))
            return found

        return looked

    for look in ("get_runs", "get_run_records"):
        monkeypatch.setattr(face.instance, look, meanwhile(getattr(face.instance, look)))
    ticked = face.tick(sensor, cursor)
    assert asked
    assert request.partition_key not in [again.partition_key for again in ticked.requests]
    assert sensor == NEW_DATA or [row.attempt for row in triggers(face)] == [1]
