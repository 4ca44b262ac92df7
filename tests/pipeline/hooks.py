"""Hooks as a user writes them; what they heard is in ``HEARD``, what they raise is in ``RAISES``."""

from modyn_dagster.pipeline.event import Event

HEARD: list[Event] = []
RAISES: list[BaseException] = []


def hook(event: Event) -> None:
    if RAISES:
        raise RAISES[0]
    HEARD.append(event)
