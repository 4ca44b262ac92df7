"""Worlds of one test each."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from modyn_dagster.pipeline.platform import worker_platform
from modyn_dagster.settings import Settings
from tests.pipeline.inline_pool import InlinePool
from tests.pipeline.world import World, make_world


@pytest.fixture
def world_of(settings: Settings, tmp_path) -> Iterator[Callable[..., World]]:
    """Makes a world with some pipelines; its connections are closed at the end."""
    made: list[World] = []

    def make(*pipelines, **options) -> World:
        made.append(make_world(settings, tmp_path / f"project{len(made)}", pipelines, **options))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def workers() -> Iterator[Callable[..., InlinePool]]:
    """Makes pools, and closes the platforms that their calls opened."""
    made: list[InlinePool] = []

    def make(*given: Any, **options: Any) -> InlinePool:
        made.append(InlinePool(*given, **options))
        return made[-1]

    yield make
    for pool in made:
        for opened in pool.settings:
            worker_platform(opened).close()
    worker_platform.cache_clear()
