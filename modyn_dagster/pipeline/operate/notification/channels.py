"""Channels of a pipeline: objects that deliver one event each time, and raise where they cannot."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from modyn_dagster.imports import import_callable
from modyn_dagster.pipeline.event import Event
from modyn_dagster.pipeline.operate.notification.command import CommandChannel
from modyn_dagster.pipeline.operate.notification.webhook import Webhook
from modyn_dagster.spec.notification.channels import ChannelName
from modyn_dagster.spec.notification.notify import NotifySpec


class Channel(Protocol):
    """One way to tell of events."""

    @property
    def name(self) -> ChannelName:
        """Field of ``notify``."""
        ...

    @property
    def target(self) -> str:
        """Receiver, as logs and the catalog may show it."""
        ...

    def deliver(self, event: Event, event_id: str, within: float) -> None:
        """Tell of an event, in so many seconds; the id is equal at every try. Raises any exception where it fails."""
        ...


class Hook:
    """Channel that calls a function of the user; nothing but the end of its process ends one that hangs."""

    name: Final[ChannelName] = "hook"

    def __init__(self, path: str, *, source: str) -> None:
        self._path, self._source = path, source

    @property
    def target(self) -> str:
        """Import path of the function."""
        return self._path

    def deliver(self, event: Event, event_id: str, within: float) -> None:
        """Import the function and call it with the event."""
        function: Callable[[Event], Any] = import_callable(self._path, source=self._source, field="notify.hook")
        function(event)


def open_channel(name: ChannelName, notify: NotifySpec, project: Path, *, source: str) -> Channel:
    """Make a channel that a spec names.

    Args:
        name: the channel; the spec has its field.
        notify: the spec.
        project: folder that commands run in.
        source: pipeline, as errors name it.
    """
    match name:
        case "webhook":
            assert notify.webhook is not None  # noqa: S101 - it is one of the spec's channels; narrows the type
            return Webhook(notify.webhook, source=source)
        case "command":
            assert notify.command is not None  # noqa: S101 - as above
            return CommandChannel(notify.command, project, source=source)
        case "hook":
            assert notify.hook is not None  # noqa: S101 - as above
            return Hook(notify.hook, source=source)
