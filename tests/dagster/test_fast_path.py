"""The resource ``modyn_fast_path``: what runs can set, and where it arrives."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pydantic import ValidationError

from modyn_dagster import build_definitions
from modyn_dagster.resources.fast_path import FastPathResource
from modyn_dagster.settings import Settings
from modyn_dagster.training import FastPath

EXAMPLE = Path(__file__).parents[2] / "examples" / "baseball"


def test_its_defaults_are_those_of_the_trainer() -> None:
    assert FastPathResource().settings() == FastPath()


def test_every_setting_reaches_the_trainer() -> None:
    resource = FastPathResource(threads=3, prefetch=0, cache_mb=1, resident=True, pin=False)
    assert resource.settings() == FastPath(threads=3, prefetch=0, cache_bytes=1 << 20, pin=False, resident=True)


@pytest.mark.parametrize("impossible", [{"threads": 0}, {"prefetch": -1}, {"cache_mb": -1}])
def test_impossible_settings_are_refused(impossible: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(impossible))):
        FastPathResource(**impossible)


def test_trainings_replays_and_evaluations_that_take_a_backlog_use_it(home: Path) -> None:
    defs = build_definitions(settings=Settings(EXAMPLE, home))
    using = {
        asset.key.to_user_string()
        for asset in defs.assets or []
        if isinstance(asset, dg.AssetsDefinition) and "modyn_fast_path" in asset.required_resource_keys
    }
    pipelines, parts = ("trained_once", "every_10_seasons", "every_5000_samples"), ("model", "replay", "evaluation")
    assert using == {f"{pipeline}/{part}" for pipeline in pipelines for part in parts}


def test_a_project_sets_its_own(home: Path) -> None:
    defs = build_definitions(settings=Settings(EXAMPLE, home), fast_path=FastPathResource(threads=4))
    resource = (defs.resources or {})["modyn_fast_path"]
    assert isinstance(resource, FastPathResource)
    assert resource.settings().threads == 4
