"""Repair: whatever is derived comes back with the same bytes, whatever else says why not, and a launch is never stuck."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings as examples_of
from hypothesis import strategies as st

from modyn_dagster.catalog.datasets import get_dataset
from modyn_dagster.ingestion.deletion.delete import delete_samples
from modyn_dagster.ingestion.deletion.purge import purge_samples
from modyn_dagster.keys import keys_of
from modyn_dagster.settings import Settings
from tests.pipeline.integrity.homes import DERIVED, PACKED, files_of, findings, flip, full_world, repaired
from tests.pipeline.world import World
from tests.projects.tiny import DATASET

import numpy as np


@pytest.fixture
def world(settings: Settings, tmp_path: Path) -> Iterator[World]:
    made = full_world(settings, tmp_path / "project")
    yield made
    made.close()


def contents(world: World) -> dict[Path, bytes]:
    return {path: path.read_bytes() for kind in DERIVED for path in files_of(world, kind)}


def test_a_sound_home_is_left_alone(world: World) -> None:
    before = contents(world)
    assert repaired(world) == []
    assert contents(world) == before


def test_everything_derived_comes_back_with_the_same_bytes(world: World) -> None:
    """Damaged all at once: what others are made from is made first."""
    before = contents(world)
    for number, (path, content) in enumerate(before.items()):
        if number % 2:
            path.unlink()
        else:
            flip(path, len(content) // 2)
    outcomes = repaired(world)
    assert [outcome.reason for outcome in outcomes if not outcome.is_repaired] == []
    assert findings(world) == []
    after = contents(world)
    whole = {path for path in before if path.suffix not in (".safetensors", ".pack")}
    assert {path: after[path] for path in whole} == {path: before[path] for path in whole}
