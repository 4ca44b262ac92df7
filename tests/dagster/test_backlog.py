"""A run that the sensor asked for trains the backlog after its own trigger; kills lose nothing of it, and nobody waits for it."""

from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import RemoteJobOrigin

from modyn_dagster.assets.live.backlog import turn_of
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.decide import backlog
from modyn_dagster.pipeline.stages import trigger_stages
from modyn_dagster.pipeline.stages.trigger_stages import StageResult, training_set_stage
from tests.dagster.face import Face, Ticked, error_of
from tests.dagster.test_production import TRIGGERING, produce, take_in, triggers
from tests.dagster.test_run_classes import ORIGIN

ASSETS = ("training_set", "model", "evaluation")


class Killed(BaseException):
    """As what ends a run from outside: no attempt is given up for it."""


def shown(face: Face) -> list[set[str]]:
    """Partitions of each asset of a trigger that Dagster shows."""
    return [face.instance.get_materialized_partitions(dg.AssetKey(["by_amount", asset])) for asset in ASSETS]


def keys(face: Face) -> set[str]:
    return {trigger.partition_key for trigger in triggers(face)}


def first_request(face: Face) -> dg.RunRequest:
    take_in(face)
    [request] = face.tick(TRIGGERING).requests
    return request


def killed_in_second(patch: pytest.MonkeyPatch, stage: str) -> None:
    """Let whatever trains the second trigger die after a stage was committed, before it is shown."""
    made = getattr(trigger_stages, stage)

    def dies(*arguments: Any, **options: Any) -> StageResult:
        made(*arguments, **options)
        raise Killed

    patch.setattr(backlog, stage, dies)


def test_every_trigger_of_the_backlog_has_its_own_materializations_and_checks(face: Face, days: list[str]) -> None:
    result = face.launch(first_request(face))
    assert result.success, error_of(result)
    assert len(keys(face)) == 2
    assert shown(face) == [keys(face)] * 3
    for key in keys(face):
        assert face.evaluations(result)["champion", key]
        assert face.evaluations(result)["stored_exactly", key]
    records = face.instance.fetch_materializations(dg.AssetKey(["by_amount", "model"]), limit=100).records
    assert sorted(str(record.partition_key) for record in records) == sorted(keys(face)), "once each"


@pytest.mark.soak("screens")
def test_a_run_that_a_person_launched_takes_nothing_else(face: Face, days: list[str]) -> None:
    request = first_request(face)
    assert face.launch(dg.RunRequest(job_name=request.job_name, partition_key=request.partition_key)).success
    assert len(triggers(face)) == 1


@pytest.mark.soak("screens")
def test_a_turn_ends_when_another_training_waits_in_the_queue(face: Face, days: list[str]) -> None:
    request = first_request(face)
    job = face.defs.resolve_job_def("retention")
    origin = RemoteJobOrigin(ORIGIN, "retention")
    status = dg.DagsterRunStatus.QUEUED
    waiting = face.instance.create_run_for_job(job, tags={"modyn/class": "training"}, status=status, remote_job_origin=origin)
    assert face.launch(request).success
    assert len(triggers(face)) == 1
    face.instance.report_run_canceled(waiting)
    [following] = face.tick(TRIGGERING).requests
    assert face.launch(following).success
    assert [row.state for row in triggers(face)] == ["trained", "trained"]


@pytest.mark.soak("screens")
def test_the_sensor_asks_for_nothing_while_a_run_takes_the_backlog(
    face: Face, days: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    request, ticked = first_request(face), list[Ticked]()

    def ticks_first(context: TriggerContext) -> StageResult:
        ticked.append(face.tick(TRIGGERING))
        return training_set_stage(context)

    monkeypatch.setattr(backlog, "training_set_stage", ticks_first)
    result = face.launch(request)
    assert result.success, error_of(result)
    assert [(tick.requests, "is training (attempt 1)" in str(tick.skipped)) for tick in ticked] == [([], True)]
    assert [(row.state, row.attempt) for row in triggers(face)] == [("trained", 1)] * 2


@pytest.mark.soak("screens")
@pytest.mark.parametrize("stage", ["training_set_stage", "model_stage", "evaluation_stage"])
def test_after_a_kill_in_the_second_trigger_everything_is_trained_and_shown_once(face: Face, days: list[str], stage: str) -> None:
    request = first_request(face)
    with pytest.MonkeyPatch.context() as patch:
        killed_in_second(patch, stage)
        assert not face.launch(request).success
    before = triggers(face)
    _, asked = produce(face)
    trained_again = before[1].state == "training"
    assert [row.attempt for row in triggers(face)] == [1, 2 if trained_again else 1]
    assert asked[0].job_name == ("train__by_amount" if trained_again else "evaluate__by_amount")
    assert [row.state for row in triggers(face)] == ["trained", "trained"]
    assert shown(face) == [keys(face)] * 3


def test_a_turn_lasts_a_minute_and_at_most_a_tenth_of_what_a_run_may_take(instance: dg.DagsterInstance) -> None:
    for max_run_time, seconds in (("1d", 60), ("5m", 30)):
        now = [100.0]
        lasts = turn_of(instance, max_run_time, lambda now=now: now[0])  # type: ignore[misc]  # bound early
        now[0] += seconds - 0.1
        assert lasts()
        now[0] += 0.2
        assert not lasts()
