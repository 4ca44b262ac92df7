"""The alias ``champion`` and the asset check that gates it, on models that a pipeline trained: one says what the other does."""

from dataclasses import replace
from pathlib import Path

import pytest

from modyn_dagster.pipeline.checks import CheckResult
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.stages.trigger_stages import evaluation_stage
from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.reporting.mlflow.tracker import Tracker
from modyn_dagster.settings import Settings
from tests.pipeline.world import make_world
from tests.projects.tiny import DATASET, amount

NAME = "championed"


@pytest.mark.soak("screens")
def test_the_champion_is_the_last_model_whose_check_passed(
    settings: Settings, mlflow_uri: str, tracker: Tracker, tmp_path: Path
) -> None:
    content = amount(NAME, every=20)
    content["evaluation"]["intervals"]["every"] = "1d"
    world = make_world(settings, tmp_path / "project", [content])
    client, engine = open_client(mlflow_uri), world.platform.engine
    outcomes: set[bool] = set()
    for days in ([0, 1], [2, 3]):
        world.deliver(days)
        world.live_until_idle(NAME)
        run = world.run(NAME, "live")
        tracker.sync_all(engine, run)
        checks: dict[str, CheckResult] = {}
        for trigger in world.triggers(run.id, "trained"):
            context = replace(context_of(world.platform, NAME, trigger.partition_key), view=world.platform.view(DATASET))
            result = evaluation_stage(context, finished=False)
            [checks[trigger.partition_key]] = [check for check in result.checks if check.name == "champion"]
        tags = {
            version.tags["modyn/trigger"]: version.tags["modyn/champion"]
            for version in client.search_model_versions(f"name = '{NAME}'")
        }
        assert tags == {
            key: f"{'promoted' if check.passed else 'not promoted'}: {check.description}" for key, check in checks.items()
        }
        for alias, expected in {
            "champion": [key for key, check in checks.items() if check.passed][-1],
            "current": list(checks)[-1],
        }.items():
            assert client.get_model_version_by_alias(NAME, alias).tags["modyn/trigger"] == expected
        outcomes |= {check.passed for check in list(checks.values())[1:]}
    assert outcomes == {True, False}
    world.close()
