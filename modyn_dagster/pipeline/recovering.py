"""Which platform trains a model again: that of whoever asks for the model, if it is one."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from modyn_dagster.pipeline.platform import Platform

_PLATFORM: Final[ContextVar[Platform | None]] = ContextVar("platform that trains again", default=None)


@contextmanager
def on_platform(platform: Platform) -> Iterator[None]:
    """Within the block trainings use this platform; else they open the one that the environment names."""
    token = _PLATFORM.set(platform)
    try:
        yield
    finally:
        _PLATFORM.reset(token)


def platform_at_work() -> Platform | None:
    """The one of the innermost block."""
    return _PLATFORM.get()
