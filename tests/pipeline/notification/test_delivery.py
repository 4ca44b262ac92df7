"""Delivery through several channels: each gets every event once, whatever the others do."""

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.database.mapping import metadata
from modyn_dagster.catalog.notifications import notification, notifications
from modyn_dagster.pipeline.event import Event
from modyn_dagster.pipeline.operate.notification.delivery import Delivery, deliver_events, deliver_test, undelivered_events
from modyn_dagster.spec.notification.channels import ChannelName
from tests.pipeline import hooks
from tests.pipeline.notification.receiver import Receiver, is_authentic, silent
from tests.pipeline.world import World
from tests.projects.tiny import amount

HOOK = "tests.pipeline.hooks:hook"
SECRET = "a secret of the shop, in no row"
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def heard() -> Iterator[list[Event]]:
    yield hooks.HEARD
    hooks.HEARD.clear()
    hooks.RAISES.clear()


def since_long_ago(world: World) -> dict[ChannelName, datetime]:
    notify = world.platform.pipeline("by_amount").notify
    assert notify is not None
    return dict.fromkeys(notify.channels, LONG_AGO)


def tell(world: World, minutes: float = 0) -> list[tuple[str, str, bool]]:
    """One call, so many minutes from now: channel, event and success of every delivery."""
    return [(each.channel, each.event.name, each.error is None) for each in told(world, minutes)]


def told(world: World, minutes: float = 0) -> list[Delivery]:
    now = datetime.now(UTC) + timedelta(minutes=minutes)
    return list(deliver_events(world.platform, "by_amount", since_long_ago(world), now))


def tries(world: World) -> dict[tuple[str, str], tuple[int, bool]]:
    """Tries by event and channel, and whether the last one was made."""
    with world.platform.transaction() as conn:
        rows = notifications(conn, world.run("by_amount", "live").id)
    return {key: (row.tries, row.told_at is not None) for key, row in rows.items()}


def with_triggers(world: World, n: int = 1) -> World:
    """A world whose live run has made so many triggers."""
    world.deliver(range(n))
    world.live_until_idle("by_amount")
    return world


def script(world_folder: Path, *lines: str) -> None:
    path = world_folder / "tell.sh"
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)


def notify(receiver: Receiver | None = None, **fields: Any) -> dict[str, Any]:
    return ({} if receiver is None else {"webhook": {"url": receiver.url}}) | fields


def test_every_channel_is_told_of_every_event_once(world_of, receiver, heard):
    world = world_of(amount(every=40, notify=notify(receiver, hook=HOOK, command=["./tell.sh"])))
    script(world.folder, 'echo "$MODYN_EVENT_NAME" >> heard')
    with_triggers(world, 2)
    names = ["trigger 0", "trigger 1"]
    assert tell(world) == [(channel, name, True) for channel in ("webhook", "command", "hook") for name in names]
    assert [event.name for event in heard] == names
    assert (world.folder / "heard").read_text().splitlines() == names
    assert [request.headers["modyn-event"] for request in receiver.requests] == names
    assert tell(world) == []


def test_a_hook_that_fails_repeats_no_webhook_and_the_other_way_round(world_of, receiver, heard):
    world = with_triggers(world_of(amount(every=40, notify=notify(receiver, hook=HOOK))))
    hooks.RAISES.append(ConnectionError("out"))
    receiver.answers = [500]
    failed = [("webhook", "trigger 0", False), ("hook", "trigger 0", False)]
    assert tell(world) == failed
    receiver.answers = [200]
    assert tell(world, 1) == [("webhook", "trigger 0", True), ("hook", "trigger 0", False)]
    assert tell(world) == [("hook", "trigger 0", False)]
    assert tell(world) == []
    assert (len(receiver.requests), heard) == (2, [])
    assert tries(world) == {("trigger 0", "webhook"): (2, True), ("trigger 0", "hook"): (3, True)}


def test_a_try_after_503_has_the_same_id_and_a_signature_of_its_own(world_of, receiver, monkeypatch):
    monkeypatch.setenv("SHOP_SECRET", SECRET)
    world = world_of(amount(every=40, notify={"webhook": {"url": receiver.url, "secret_env": "SHOP_SECRET"}}))
    with_triggers(world, 2)
    receiver.answers = [503, 200]
    assert [(each.error, each.last) for each in told(world)] == [(f"{receiver.origin} answers 503 Service Unavailable", False)]
    assert tell(world, 1) == [("webhook", "trigger 0", True), ("webhook", "trigger 1", True)]
    ids = [request.headers["webhook-id"] for request in receiver.requests]
    assert (ids[0], len(set(ids))) == (ids[1], 2)
    assert all(is_authentic(request, SECRET.encode()) for request in receiver.requests)
    assert tell(world) == []


def test_another_catalog_with_the_same_run_and_events_has_other_ids(world_of, receiver):
    world = with_triggers(world_of(amount(every=40, notify=notify(receiver))))
    told(world)
    with world.platform.transaction() as conn:
        conn.execute(sa.delete(notification))
    told(world)
    first, second = receiver.requests
    assert first.headers["modyn-event"] == second.headers["modyn-event"]
    assert first.headers["webhook-id"] != second.headers["webhook-id"]


@pytest.mark.parametrize("status", [301, 400, 404, 410])
def test_a_refusal_for_good_is_one_try(world_of, receiver, status):
    world = with_triggers(world_of(amount(every=40, notify=notify(receiver))), 2)
    receiver.answers = [status, 200]
    assert [(each.error is None, each.last) for each in told(world)] == [(False, True), (True, True)]
    assert (tell(world), len(receiver.requests)) == ([], 2)


@pytest.mark.soak("replays")
def test_a_receiver_that_stays_away_is_asked_after_pauses_that_double_up_to_an_hour_for_a_day(world_of, receiver):
    world = with_triggers(world_of(amount(every=40, notify=notify(receiver))))
    receiver.answers = [503]
    since = since_long_ago(world)
    [first] = told(world)
    with world.platform.transaction() as conn:
        [row] = notifications(conn, first.event.run).values()
    pauses = [0.5 * 2**n for n in range(7)] + [60.0] * 22
    due = row.created_at
    for n, pause in enumerate(pauses, 2):
        due += timedelta(minutes=pause)
        early = due - timedelta(seconds=1)
        assert undelivered_events(world.platform, "by_amount", since, early) == [], "nor does the sensor ask for a run"
        # Another process, which knows of the tries before from the catalog alone.
        [each] = deliver_events(world.platform, "by_amount", since, due)
        assert each.last == (n == 30)
    assert tries(world) == {("trigger 0", "webhook"): (30, True)}
    assert undelivered_events(world.platform, "by_amount", since, due + timedelta(days=9)) == []
    assert timedelta(hours=23) < due - row.created_at < timedelta(days=1)
    assert len(receiver.requests) == 30


def test_an_event_is_posted_again_after_pauses_that_grow_and_later_ones_need_not_wait_for_it(world_of, receiver):
    world = with_triggers(world_of(amount(every=40, notify=notify(receiver))), 2)
    receiver.answers = [502, 200, 502, 502, 502, 200]
    assert tell(world) == [("webhook", "trigger 0", False), ("webhook", "trigger 1", True)]
    for minutes in (1, 2, 4):
        assert tell(world, minutes) == [("webhook", "trigger 0", False)]
        assert tell(world, minutes + 0.25) == [], "the next pause is longer"
    assert tell(world, 8) == [("webhook", "trigger 0", True)]
    assert tell(world, 9_999) == []


@pytest.mark.soak("replays")
def test_a_receiver_that_is_away_is_not_asked_about_other_events_in_the_same_run(world_of, receiver, heard):
    world = world_of(amount(every=40, notify={"webhook": {"url": receiver.url, "timeout": "1s"}, "hook": HOOK}))
    with_triggers(world, 3)
    receiver.answers = [silent(receiver), 200]
    names = [f"trigger {i}" for i in range(3)]
    assert tell(world) == [("webhook", "trigger 0", False), *(("hook", name, True) for name in names)]
    assert tell(world, 1) == [("webhook", name, True) for name in names]
    assert {key: n for key, (n, _) in tries(world).items() if key[1] == "webhook"} == {
        (name, "webhook"): n for name, n in zip(names, (2, 1, 1))
    }


@pytest.mark.soak("replays")
def test_a_command_that_takes_all_the_time_of_a_run_comes_after_the_others_in_the_next(world_of, heard):
    world = world_of(amount(every=40, notify={"hook": HOOK, "command": ["./tell.sh"], "max_run_time": "1s"}))
    script(world.folder, "sleep 600")
    with_triggers(world)
    assert tell(world) == [("command", "trigger 0", False)]
    assert tries(world) == {("trigger 0", "command"): (1, False)}, "a hook without time left was not tried"
    assert tell(world) == [("hook", "trigger 0", True), ("command", "trigger 0", False)]
    assert [event.name for event in heard] == ["trigger 0"]


def test_a_secret_is_in_no_row_no_log_and_no_error(world_of, receiver, tmp_path, caplog):
    path = tmp_path / "secret"
    path.write_text(SECRET)
    with caplog.at_level(logging.DEBUG):
        world = world_of(amount(every=40, notify={"webhook": {"url": receiver.url, "secret_file": str(path)}}))
        with_triggers(world, 2)
        receiver.answers = [200, 500]
        deliveries = told(world)
        path.chmod(0o666)
        deliveries += told(world, 1)
    assert [each.error is None for each in deliveries] == [True, False, False]
    assert is_authentic(receiver.requests[0], SECRET.encode())
    assert all(SECRET not in str(each) for each in deliveries)
    assert SECRET not in caplog.text
    with world.platform.transaction() as conn:
        rows = [str(tuple(row)) for table in metadata.sorted_tables for row in conn.execute(sa.select(table))]
    assert len(rows) > 100
    assert not any(SECRET in row for row in rows)


def test_a_channel_that_is_added_is_told_only_from_its_own_moment_on(world_of, receiver, heard):
    world = with_triggers(world_of(amount(every=40, notify=notify(receiver, hook=HOOK))))
    later = datetime.now(UTC) + timedelta(minutes=1)
    moments: dict[ChannelName, datetime] = {"hook": LONG_AGO, "webhook": later}
    assert [each.channel for each in deliver_events(world.platform, "by_amount", moments)] == ["hook"]
    assert undelivered_events(world.platform, "by_amount", moments) == []
    only_hook: dict[ChannelName, datetime] = {"hook": LONG_AGO}
    assert list(deliver_events(world.platform, "by_amount", only_hook)) == []
    assert [event.name for event in undelivered_events(world.platform, "by_amount", since_long_ago(world))] == ["trigger 0"]


@pytest.mark.parametrize("text", ["null \0 byte", "half \ud800 a character"])
def test_an_error_whose_text_postgres_does_not_take_is_recorded_all_the_same(world_of, heard, text):
    world = with_triggers(world_of(amount(every=40, notify={"hook": HOOK})))
    hooks.RAISES.append(ValueError(text))
    [each] = told(world)
    assert str(each.error).startswith(f"ValueError: {text[:4]}")
    assert tries(world) == {("trigger 0", "hook"): (1, False)}


def trials(deliveries: Sequence[Delivery]) -> list[tuple[str, str, str | None]]:
    return [(each.channel, each.target, each.error) for each in deliveries]


def test_a_trial_tells_every_channel_now_and_records_nothing(world_of, receiver, heard):
    world = world_of(amount(every=40, notify=notify(receiver, hook=HOOK, command=["./tell.sh"])))
    receiver.answers = [404]
    assert trials(list(deliver_test(world.platform, "by_amount"))) == [
        ("webhook", receiver.origin, f"{receiver.origin} answers 404 Not Found, and would at every try"),
        (
            "command",
            "./tell.sh",
            "pipeline by_amount: notify.command: must be a file that may be executed, from the project's folder or the root"
            " (found './tell.sh')",
        ),
        ("hook", HOOK, None),
    ]
    [event] = heard
    assert (event.kind, event.pipeline, event.run, event.trigger) == ("test", "by_amount", 0, "")
    assert "engine" not in world.platform.__dict__, "nothing has asked for the database"
