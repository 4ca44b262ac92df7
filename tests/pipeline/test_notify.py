"""Hooks: told of what matters, once, whatever they do."""

import dataclasses
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.notifications import NotificationRow, notifications
from modyn_dagster.catalog.results.evaluations import evaluation
from modyn_dagster.errors import ConfigError
from modyn_dagster.pipeline.decide.attempts import give_up_attempt
from modyn_dagster.pipeline.decide.live_run import resume_run
from modyn_dagster.pipeline.decide.manual_trigger import trigger_now
from modyn_dagster.pipeline.event import Event
from modyn_dagster.pipeline.operate.notification.delivery import Delivery, deliver_events, undelivered_events
from modyn_dagster.reporting.summary import summarise_run
from modyn_dagster.spec.load import parse_spec, spec_hash
from modyn_dagster.spec.pipeline import PipelineSpec
from tests.pipeline import hooks
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, amount, write_pipeline

NOTIFY = {"hook": "tests.pipeline.hooks:hook"}
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def heard() -> Iterator[list[Event]]:
    yield hooks.HEARD
    hooks.HEARD.clear()
    hooks.RAISES.clear()


def told(world: World, since: datetime = LONG_AGO) -> list[Delivery]:
    return list(deliver_events(world.platform, "by_amount", {"hook": since}))


def notified(world: World) -> Mapping[str, NotificationRow]:
    with world.platform.transaction() as conn:
        rows = notifications(conn, world.run("by_amount", "live").id)
    return {event: row for (event, _), row in rows.items()}


def test_it_hears_of_every_trigger_once(world_of, heard):
    world = world_of(amount(every=90, notify=NOTIFY))
    world.deliver([0, 1, 2])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    told(world)
    [event] = heard
    assert (event.kind, event.pipeline, event.dataset, event.run) == ("trigger", "by_amount", DATASET, trigger.run_id)
    assert (event.trigger, event.reason, event.at) == (trigger.partition_key, "90 samples", trigger.created_at)
    assert (event.score, event.threshold, event.manual) == (90.0, 90.0, False)
    assert event.text == "by_amount: trigger 000001-000000: 90 samples"
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.run = 7
    assert (told(world), len(heard)) == ([], 1)
    world.train("by_amount", trigger)
    trigger_now(world.platform, "by_amount", "ann")
    told(world)
    assert [(event.reason, event.manual) for event in heard] == [("90 samples", False), ("manual: ann", True)]


def test_it_hears_of_a_failed_training_and_again_when_it_fails_after_it_was_resumed(world_of, heard):
    world = world_of(amount(every=40, max_attempts=2, notify=NOTIFY))
    world.deliver([0])
    trigger = world.tick("by_amount").train
    for reason in ("first", "second"):
        run = world.run("by_amount", "live")
        _, trigger = give_up_attempt(world.platform, run, trigger, reason)
        told(world)
    assert [event.kind for event in heard] == ["trigger", "training_failed"], "attempts that are made up for are no failure"
    assert (heard[1].attempt, heard[1].error) == (2, "second")
    resume_run(world.platform, run)
    for reason in ("third", "fourth"):
        [trigger] = world.triggers(run.id)
        give_up_attempt(world.platform, run, trigger, reason)
        told(world)
    assert [(event.attempt, event.error) for event in heard[2:]] == [(4, "fourth")]


@pytest.mark.soak("replays")
@pytest.mark.parametrize("kind", ["score_below", "score_above"])
def test_it_hears_of_scores_of_the_active_model_beyond_the_limit(world_of, heard, kind):
    limit = {"floor": 0.8} if kind == "score_below" else {"ceiling": 0.8}
    world = world_of(amount(every=40, notify=NOTIFY | {kind: {"metric": "accuracy"} | limit}))
    for days in range(0, 9, 3):
        world.deliver(range(days, days + 3))
        world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    told(world)
    bad = [event for event in heard if event.kind == kind]
    with world.platform.transaction() as conn:
        active = summarise_run(conn, run, "accuracy").active
    beyond = [s for s in active if s.value is not None and (s.value < 0.8 if kind == "score_below" else s.value > 0.8)]
    assert [(event.interval, event.score) for event in bad] == [(score.interval, score.value) for score in beyond]
    assert 0 < len(bad) < len([score for score in active if score.value is not None])
    assert {(event.metric, event.threshold) for event in bad} == {("accuracy", 0.8)}
    assert told(world) == []


@pytest.mark.soak("replays")
def test_a_score_that_is_made_again_is_not_told_again(world_of, heard):
    world = world_of(amount(every=40, notify=NOTIFY | {"score_below": {"metric": "accuracy", "floor": 1.0}}))
    world.deliver(range(6))
    world.live_until_idle("by_amount")
    told(world)
    before = len(heard)
    with world.platform.transaction() as conn:
        conn.execute(sa.update(evaluation).values(value=0.01))
    assert told(world) == []
    assert len(heard) == before > 6


def test_what_a_hook_raises_is_recorded_and_tried_again_a_few_times_and_disturbs_nothing(world_of, heard):
    world = world_of(amount(every=40, notify=NOTIFY))
    world.deliver([0, 1])
    world.tick("by_amount")
    hooks.RAISES.append(ConnectionError("the messenger is out"))
    tries = [told(world) for _ in range(4)]
    assert [[(each.error, each.last) for each in attempt] for attempt in tries] == [
        [("ConnectionError: the messenger is out", False)],
        [("ConnectionError: the messenger is out", False)],
        [("ConnectionError: the messenger is out", True)],
        [],
    ]
    hooks.RAISES.clear()
    assert told(world) == []
    assert notified(world)["trigger 0"].error == "ConnectionError: the messenger is out"
    world.live_until_idle("by_amount")
    assert [event.trigger for event in undelivered_events(world.platform, "by_amount", {"hook": LONG_AGO})] == ["000001-000001"]
    told(world)
    assert [event.trigger for event in heard] == ["000001-000001"]


def test_a_mistake_in_a_hook_is_recorded_and_not_tried_again(world_of, heard):
    world = world_of(amount(every=40, notify=NOTIFY))
    world.deliver([0])
    world.tick("by_amount")
    hooks.RAISES.append(TypeError("not a text"))
    assert [(each.error, each.last) for each in told(world)] == [("TypeError: not a text", True)]
    assert (told(world), notified(world)["trigger 0"].tries) == ([], 1)


def test_a_hook_that_answers_at_last_is_not_called_again(world_of, heard):
    world = world_of(amount(every=40, notify=NOTIFY))
    world.deliver([0])
    world.tick("by_amount")
    hooks.RAISES.append(ConnectionError("out"))
    told(world)
    hooks.RAISES.clear()
    assert [(each.error, each.last) for each in told(world)] == [(None, True)]
    assert (notified(world)["trigger 0"].tries, notified(world)["trigger 0"].error) == (2, None)
    assert (told(world), len(heard)) == ([], 1)


def test_a_hook_that_ends_its_process_is_not_called_for_ever(world_of, heard):
    world = world_of(amount(every=40, notify=NOTIFY))
    world.deliver([0])
    world.tick("by_amount")
    hooks.RAISES.append(SystemExit("bye"))
    for _ in range(3):
        with pytest.raises(SystemExit):
            told(world)
    assert told(world) == []
    assert (notified(world)["trigger 0"].tries, notified(world)["trigger 0"].error) == (3, "it has not returned")


def test_a_hook_that_cannot_be_imported_is_an_error_of_the_hook(world_of):
    world = world_of(amount(every=40, notify={"hook": "tests.pipeline.hooks:nowhere"}))
    world.deliver([0])
    world.tick("by_amount")
    [each] = told(world)
    assert "pipeline by_amount: notify.hook: cannot be imported" in str(each.error)


def test_what_happened_before_and_what_a_replay_does_is_not_told(world_of, heard):
    world = world_of(amount(every=40, notify=NOTIFY))
    world.deliver([0, 1])
    world.replay("by_amount")
    assert told(world) == []
    world.tick("by_amount")
    assert told(world, datetime.now(UTC) + timedelta(minutes=1)) == []
    assert len(told(world)) == 1


def test_an_event_of_a_run_that_was_superseded_a_moment_ago_is_still_told(world_of, heard):
    world = world_of(amount(every=40, notify=NOTIFY))
    world.deliver([0])
    world.live_until_idle("by_amount")
    write_pipeline(world.folder, amount(every=60, notify=NOTIFY))
    world.reload()
    world.tick("by_amount")
    told(world)
    assert [event.trigger for event in heard] == ["000001-000000"]


def test_who_is_told_is_no_part_of_what_a_pipeline_does():
    plain, told_of = (parse_spec(content, PipelineSpec, source="test") for content in (amount(), amount(notify=NOTIFY)))
    assert spec_hash(plain) == spec_hash(told_of)


@pytest.mark.parametrize(
    ("field", "content"),
    [
        ("notify.score_below.metric must be one of evaluation.metrics", {"score_below": {"metric": "mae", "floor": 1}}),
        ("notify: score_below.floor is above score_above.ceiling", None),
        ("notify.score_below.metric: Input should be", {"score_below": {"metric": "nonsense", "floor": 1}}),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(field, content):
    both = {"score_below": {"metric": "accuracy", "floor": 0.9}, "score_above": {"metric": "accuracy", "ceiling": 0.1}}
    with pytest.raises(ConfigError, match=field):
        parse_spec(amount(notify=NOTIFY | (content or both)), PipelineSpec, source="test")
