"""Worlds of one test each."""

from collections.abc import Callable, Iterator

import pytest

from modyn_dagster.settings import Settings
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
