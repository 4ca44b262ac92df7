"""``modyn-dagster dataset replace`` under a live pipeline, which goes on with the corrected samples."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner, Result

from modyn_dagster.catalog.database.urls import child_environment
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.cli import main
from modyn_dagster.settings import Settings
from tests.pipeline.world import World, make_world
from tests.projects.tiny import DATASET, amount, batch_text, drop


@pytest.fixture
def world(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_world(settings, tmp_path / "project", [amount(every=40, selection={"window": "all"})])
    (made.folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    environment = child_environment(made.settings) | {"DAGSTER_HOME": str(made.folder)}
    for name, value in (made.settings.environment() | environment).items():
        monkeypatch.setenv(name, value)
    made.deliver([0, 1])
    made.live_until_idle("by_amount")
    yield made
    made.close()


def run(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(main, ["dataset", "replace", DATASET, *arguments], input=answer, catch_exceptions=False)


def test_a_corrected_file_takes_the_place_of_the_old_samples_and_the_pipeline_goes_on(world: World) -> None:
    assert "its files are those that were ingested; correct them first" in run("day_01", "--yes").stderr
    drop(world.folder, "day_01", batch_text(1, rows=44, shift=0.1))
    with world.platform.transaction() as conn:
        [_, second] = list_models(conn, 1)
    shown = run("day_01", "--dry-run")
    assert shown.stdout.splitlines() == [
        "tiny: 40 samples in 1 batches",
        "  batch day_01: 40 of 40 samples",
        "used by 1 training sets:",
        f"  by_amount (live) trigger 000001-000001: 40 of the keys; model {second.hash}",
    ]
    assert run("day_01", answer="n\n").exit_code == 1
    assert world.keys() == ["day_00", "day_01"]
    done = run("day_01", "--yes")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "tiny: batch day_01 is replaced by day_01~2, 44 samples at the end of the stream"
    assert [batch.n_deleted for batch in world.platform.view(DATASET).batches] == [0, 40, 0]
    with dg.DagsterInstance.get() as instance:
        assert "day_01~2" in instance.get_materialized_partitions(dg.AssetKey([DATASET, "samples"]))
    world.live_until_idle("by_amount")
    with world.platform.transaction() as conn:
        *_, newest = list_models(conn, 1)
    assert (newest.ordinal, newest.n_samples) == (2, 40 + 40)
    world.replay("by_amount")
    with world.platform.transaction() as conn:
        assert [model.n_samples for model in list_models(conn, 2)] == [40, 40, 80]
