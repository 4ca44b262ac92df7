"""Delivery of events through the channels of a pipeline: at least once by each of them, without blocking the pipeline."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

from modyn_dagster.backoff import growing_pauses
from modyn_dagster.catalog.notifications import NotificationRow, begin_try, end_try, notifications
from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.errors import ChannelAway, ConfigError, NotDelivered, is_permanent
from modyn_dagster.pipeline.event import Event
from modyn_dagster.pipeline.operate.events import events_since
from modyn_dagster.pipeline.operate.notification.channels import Channel, open_channel
from modyn_dagster.pipeline.operate.notification.since import Since
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.spec.base import seconds_of
from modyn_dagster.spec.notification.channels import ChannelName
from modyn_dagster.spec.notification.notify import NotifySpec
from modyn_dagster.values.digest import json_digest

#: Tries to deliver an event before it is given up, by a function or a program of this machine, and by a webhook.
MOST_TRIES: Final = 3
MOST_POSTS: Final = 30
#: Seconds from the first try of a webhook to the second. Each pause is twice as long as the one before, up to the longest: thirty
#: tries take 23 hours. So a receiver may be away for a night, and is not asked more than once an hour about each event.
FIRST_PAUSE: Final = 30.0
LONGEST_PAUSE: Final = 3_600.0
#: Number of live runs with undelivered events; one that has just ended may still have some.
_NEWEST_RUNS: Final = 2
#: Share of ``max_run_time`` after which no delivery begins: Dagster, which counts the start of the process too, ends the run.
_SHARE: Final = 0.9


@dataclass(frozen=True, slots=True)
class Delivery:
    """One try to deliver an event through a channel, and its error; ``last`` when no other try follows."""

    event: Event
    channel: ChannelName
    target: str
    error: str | None
    last: bool


@dataclass(frozen=True, slots=True)
class _Due:
    """Events that one channel is to be told, in order; ``tries`` is the largest number of tries that one of them has had."""

    channel: ChannelName
    events: list[Event]
    tries: int


def undelivered_events(platform: Platform, pipeline: str, since: Since, now: datetime | None = None) -> list[Event]:
    """List the events that some channel of a pipeline is to be told now, each once; none without ``notify``.

    ``now`` is a moment with a time zone; default: that of the call.
    """
    found = _due(platform, pipeline, since, now)
    return list({(event.run, event.name): event for due in found for event in due.events}.values())


def deliver_events(platform: Platform, pipeline: str, since: Since, now: datetime | None = None) -> Iterator[Delivery]:
    """Tell every channel of its undelivered events, one after the other, outside of any transaction.

    An exception of a channel is recorded and yielded, and a later call tries the event again there, unless the error is
    permanent: the next one, or with a webhook one after a pause that grows, also in another process. A try is counted before
    the channel is called, so that a hook that ends the process is not called for ever. A channel that is away is left alone
    until the next call. Channels whose events have failed come last: one that takes all of the time of a run has the others
    before it in the next one. ``now`` is as for ``undelivered_events``.
    """
    notify = platform.pipeline(pipeline).notify
    if notify is None:
        return
    end = time.monotonic() + _SHARE * seconds_of(notify.max_run_time)
    for due in _due(platform, pipeline, since, now):
        channel = _open(platform, pipeline, notify, due.channel)
        for event in due.events:
            left = end - time.monotonic()
            if left <= 0:
                return
            with platform.transaction() as conn:
                begun = begin_try(conn, event.run, event.name, channel.name, channel.target)
            error = _call(channel, event, _event_id(event, begun.first_at), left)
            again = error is not None and begun.number < _most_tries(channel.name) and not is_permanent(error)
            text = None if error is None else _text(error)
            with platform.transaction() as conn:
                end_try(conn, event.run, event.name, channel.name, text, again=again)
            yield Delivery(event, channel.name, channel.target, text, not again)
            if isinstance(error, ChannelAway):
                break


def deliver_test(platform: Platform, pipeline: str) -> Iterator[Delivery]:
    """Tell every channel of a pipeline of an event that did not happen, once and now; nothing is recorded.

    Raises ``ConfigError`` for a pipeline without channels.
    """
    spec = platform.pipeline(pipeline)
    if spec.notify is None:
        raise ConfigError(f"pipeline {pipeline}", "notify", None, "names no channel that could be told")
    now = datetime.now(UTC)
    event = Event(
        name=f"test {now.isoformat()}",
        kind="test",
        pipeline=pipeline,
        dataset=spec.dataset,
        run=0,
        trigger="",
        at=now,
        text=f"{pipeline}: a test of its notifications; nothing happened",
        reason="test",
    )
    for name in spec.notify.channels:
        channel = _open(platform, pipeline, spec.notify, name)
        error = _call(channel, event, f"evt_{uuid.uuid4().hex}", seconds_of(spec.notify.max_run_time))
        yield Delivery(event, channel.name, channel.target, None if error is None else _text(error), last=True)


def _due(platform: Platform, pipeline: str, since: Since, now: datetime | None) -> list[_Due]:
    """Events that are to be told now by channel, in the order in which channels are told."""
    now = datetime.now(UTC) if now is None else now
    spec = platform.pipeline(pipeline)
    notify = spec.notify
    channels = [] if notify is None else [channel for channel in notify.channels if channel in since]
    if notify is None or not channels:
        return []
    events: dict[ChannelName, list[Event]] = {channel: [] for channel in channels}
    tries = dict.fromkeys(channels, 0)
    with platform.transaction() as conn:
        for run in [run for run in list_runs(conn, pipeline) if run.mode == "live"][-_NEWEST_RUNS:]:
            tried = notifications(conn, run.id)
            for event in events_since(conn, run, spec.dataset, notify, min(since[channel] for channel in channels)):
                for channel in channels:
                    row = tried.get((event.name, channel))
                    if event.at >= since[channel] and (row is None or _is_due(row, channel, now)):
                        events[channel].append(event)
                        tries[channel] = max(tries[channel], 0 if row is None else row.tries)
    due = [_Due(channel, events[channel], tries[channel]) for channel in channels if events[channel]]
    return sorted(due, key=lambda each: each.tries)


def _most_tries(channel: ChannelName) -> int:
    return MOST_POSTS if channel == "webhook" else MOST_TRIES


def _is_due(row: NotificationRow, channel: ChannelName, now: datetime) -> bool:
    """Test that an event that was tried before is to be tried again now: counted from its first try, so a restart goes on."""
    if row.told_at is not None or row.tries >= _most_tries(channel):
        return False
    pauses = islice(growing_pauses(FIRST_PAUSE, LONGEST_PAUSE), row.tries) if channel == "webhook" else ()
    return now >= row.created_at + timedelta(seconds=sum(pauses))


def _open(platform: Platform, pipeline: str, notify: NotifySpec, name: ChannelName) -> Channel:
    return open_channel(name, notify, platform.project.folder, source=f"pipeline {pipeline}")


def _call(channel: Channel, event: Event, event_id: str, within: float) -> Exception | None:
    """Tell a channel of an event and return its error; None when it succeeds."""
    try:
        channel.deliver(event, event_id, within)
    except Exception as error:  # noqa: BLE001 - user code may raise anything; it is recorded and logged
        return error
    return None


def _event_id(event: Event, first_at: datetime) -> str:
    """Id of an event that no other installation has: numbers of runs and names of events are the same everywhere."""
    return f"evt_{json_digest([event.pipeline, event.run, event.name, first_at.astimezone(UTC).isoformat()])}"


def _text(error: Exception) -> str:
    """Text of an error as Postgres takes it; errors of channels and of import paths say themselves what failed."""
    text = str(error) if isinstance(error, (ConfigError, NotDelivered)) else f"{type(error).__name__}: {error}"
    return text.replace("\0", "�").encode(errors="replace").decode()
