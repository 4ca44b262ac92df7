"""Versions of models that saw deleted samples are tagged and out of service; the next sync registers what took their place."""

import pytest
import sqlalchemy as sa
from mlflow import MlflowClient

from modyn_dagster.catalog.results.models import model
from modyn_dagster.catalog.triggers import forget_mlflow_runs
from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.reporting.mlflow.registry.records import version_source
from modyn_dagster.reporting.mlflow.registry.withdrawn import DELETED_SAMPLES, mark_withdrawn
from modyn_dagster.reporting.mlflow.stream_time import utc_text
from modyn_dagster.reporting.mlflow.tracker import Tracker
from tests.reporting.story import Story
from tests.reporting.test_promoted_versions import crowned
from tests.reporting.test_registered_models import day, trained, versions


@pytest.fixture
def client(mlflow_uri: str) -> MlflowClient:
    return open_client(mlflow_uri)


@pytest.fixture
def live(shared_engine: sa.Engine, story: Story) -> Story:
    return Story(shared_engine, story.pipeline, mode="live")


@pytest.mark.soak("screens")
def test_a_version_is_marked_once_and_its_aliases_go_to_the_model_that_took_its_place(
    tracker: Tracker, client: MlflowClient, live: Story
) -> None:
    rows = trained(live, [0.8, 0.7, 0.9])
    tracker.sync_triggers(live.engine, live.run, rows)
    old = f"hash-{live.run.id}-{rows[2].ordinal}"
    for _ in range(2):
        assert mark_withdrawn(client, live.pipeline, {old}, "deletion request 3") == 1
    marked = versions(client, live.pipeline)[2]
    assert marked.tags[DELETED_SAMPLES] == "deletion request 3"
    assert client.get_registered_model(live.pipeline).aliases == {}
    with live.engine.begin() as conn:
        conn.execute(sa.update(model).where(model.c.trigger_id == rows[2].id).values(hash="made again"))
        forget_mlflow_runs(conn, [rows[2].id])
    tracker.sync_all(live.engine, live.run)
    found = versions(client, live.pipeline)
    assert [version.source for version in found] == [
        *(version_source(live.pipeline, row.partition_key, f"hash-{live.run.id}-{row.ordinal}") for row in rows),
        version_source(live.pipeline, rows[2].partition_key, "made again"),
    ]
    aliases = client.get_registered_model(live.pipeline).aliases
    assert {name: str(version) for name, version in aliases.items()} == dict.fromkeys(
        ("current", "champion", "live"), str(found[3].version)
    )
    assert [DELETED_SAMPLES in version.tags for version in found] == [False, False, True, False]


def test_a_withdrawn_model_without_a_successor_leaves_the_aliases_to_the_models_that_are_left(
    tracker: Tracker, client: MlflowClient, live: Story
) -> None:
    rows = trained(live, [0.8, 0.9])
    tracker.sync_triggers(live.engine, live.run, rows)
    mark_withdrawn(client, live.pipeline, {f"hash-{live.run.id}-{rows[1].ordinal}"}, "deletion request 4")
    with live.engine.begin() as conn:
        conn.execute(sa.text("delete from evaluation where trigger_id = :id"), {"id": rows[1].id})
        conn.execute(sa.delete(model).where(model.c.trigger_id == rows[1].id))
        conn.execute(sa.text("update trigger set state = 'skipped', mlflow_run_id = null where id = :id"), {"id": rows[1].id})
    tracker.sync_all(live.engine, live.run)
    aliases = client.get_registered_model(live.pipeline).aliases
    first = versions(client, live.pipeline)[0]
    assert {str(version) for version in aliases.values()} == {str(first.version)}


def test_a_champion_that_was_made_again_went_live_when_it_was_and_the_version_before_keeps_its_moments(
    tracker: Tracker, client: MlflowClient, shared_engine: sa.Engine, story: Story
) -> None:
    live = Story(shared_engine, story.pipeline, mode="live", promotion={"metric": "log_loss"})
    first, second = trained(live, [0.8, 0.9])
    crowned(live, first, day(0), 1)
    crowned(live, second, day(5), 3, "shadow", first)
    tracker.sync_models(live.engine, live.run)
    mark_withdrawn(client, live.pipeline, {f"hash-{live.run.id}-{second.ordinal}"}, "deletion request 5")
    again = f"hash-{live.run.id}-{second.ordinal}-again"
    with live.engine.begin() as conn:
        conn.execute(sa.update(model).where(model.c.trigger_id == second.id).values(hash=again))
    crowned(live, second, day(9), 4, "champion", model_hash=again)
    tracker.sync_models(live.engine, live.run)
    tags = [(version.tags["modyn/model"], version.tags["modyn/live_from"]) for version in versions(client, live.pipeline)]
    assert tags == [
        (f"hash-{live.run.id}-{first.ordinal}", utc_text(day(0))),
        (f"hash-{live.run.id}-{second.ordinal}", utc_text(day(5))),
        (again, utc_text(day(9))),
    ]
    found = [tracker.live_at(live.pipeline, day(moment)) for moment in (0, 5, 8.9, 9, 1000)]
    assert [None if each is None else each.version for each in found] == [1, 2, 2, 3, 3]
