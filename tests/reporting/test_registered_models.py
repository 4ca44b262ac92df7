"""Models as registered versions: one per trained trigger, aliases where they belong, and who was live when."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion

from modyn_dagster.catalog.results.models import model
from modyn_dagster.catalog.results.promotions import live_model
from modyn_dagster.catalog.triggers import TriggerRow
from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.reporting.mlflow.registry import registered_models
from modyn_dagster.reporting.mlflow.registry.records import version_source
from modyn_dagster.reporting.mlflow.registry.registered_models import registered_name
from modyn_dagster.reporting.mlflow.tracker import Tracker
from tests.reporting.story import Story, year


@pytest.fixture
def client(mlflow_uri: str) -> MlflowClient:
    return open_client(mlflow_uri)


@pytest.fixture
def live(shared_engine: sa.Engine, story: Story) -> Story:
    return Story(shared_engine, story.pipeline, mode="live")


def trained(story: Story, accuracies: list[float]) -> list[TriggerRow]:
    """A trigger per year, each judged on the same later year, and live a day after the one before."""
    rows = [story.train(10 * n, year(n)) for n in range(1, len(accuracies) + 1)]
    for n, (row, accuracy) in enumerate(zip(rows, accuracies, strict=True)):
        story.score(row, {50: accuracy})
        with story.engine.begin() as conn:
            conn.execute(sa.update(model).where(model.c.trigger_id == row.id).values(created_at=day(n)))
    return rows


def day(n: float) -> datetime:
    return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(days=n)


def versions(client: MlflowClient, name: str) -> list[ModelVersion]:
    return sorted(client.search_model_versions(f"name = '{name}'"), key=lambda version: int(version.version))


def alias(client: MlflowClient, name: str, which: str) -> str:
    return str(client.get_model_version_by_alias(name, which).tags["modyn/trigger"])


def test_each_model_is_a_version_and_the_aliases_are_where_they_belong(
    tracker: Tracker, client: MlflowClient, live: Story
) -> None:
    rows = trained(live, [0.8, 0.9, 0.7])
    for row in rows:
        tracker.sync_trigger(live.engine, live.run, row)
    found = versions(client, live.pipeline)
    assert [version.tags["modyn/trigger"] for version in found] == [row.partition_key for row in rows]
    assert [version.source for version in found] == [
        version_source(live.pipeline, row.partition_key, f"hash-{live.run.id}-{row.ordinal}") for row in rows
    ]
    assert alias(client, live.pipeline, "current") == rows[2].partition_key
    assert alias(client, live.pipeline, "champion") == rows[1].partition_key
    assert found[2].tags["modyn/champion"].startswith("not promoted: mean accuracy 0.7 against 0.9 of the champion (trigger 1)")


def test_a_sync_that_was_missed_is_made_up_in_order_and_nothing_twice(
    tracker: Tracker, client: MlflowClient, live: Story
) -> None:
    rows = trained(live, [0.5, 0.6, 0.7])
    for _ in range(2):
        tracker.sync_trigger(live.engine, live.run, rows[2])
    assert [version.tags["modyn/trigger"] for version in versions(client, live.pipeline)] == [row.partition_key for row in rows]
    later = live.train(90, year(9))
    tracker.sync_trigger(live.engine, live.run, later)
    assert len(versions(client, live.pipeline)) == 4
    # Not judged yet: the champion stays until the check passes.
    assert alias(client, live.pipeline, "current") == later.partition_key
    assert alias(client, live.pipeline, "champion") == rows[2].partition_key
    live.score(later, {50: 0.95})
    tracker.sync_trigger(live.engine, live.run, later)
    assert alias(client, live.pipeline, "champion") == later.partition_key


@pytest.mark.soak("screens")
def test_which_version_was_live_is_one_call_and_one_page(tracker: Tracker, client: MlflowClient, live: Story) -> None:
    rows = trained(live, [0.5, 0.6, 0.7])
    tracker.sync_all(live.engine, live.run)
    for n, row in enumerate(rows):
        for moment in (day(n), day(n + 0.99)):
            found = tracker.live_at(live.pipeline, moment)
            assert found is not None
            assert (found.trigger, found.version, found.since) == (row.partition_key, n + 1, day(n))
            with live.engine.begin() as conn:
                known = live_model(conn, live.pipeline, moment)
            assert known is not None
            assert known.hash == found.model
    assert tracker.live_at(live.pipeline, day(-1)) is None
    with live.engine.begin() as conn:
        assert live_model(conn, live.pipeline, day(-1)) is None
    page = client.get_registered_model(live.pipeline).description.splitlines()
    assert page[2].startswith("| 3 | 2030-01-03 00:00:00 | now |")
    assert page[4].startswith("| 1 | 2030-01-01 00:00:00 | 2030-01-02 00:00:00 |")


@pytest.mark.soak("screens")
def test_replays_do_not_touch_what_is_live(tracker: Tracker, client: MlflowClient, live: Story, story: Story) -> None:
    [row], [replayed] = trained(live, [0.5]), trained(story, [0.9])
    tracker.sync_all(live.engine, live.run)
    tracker.sync_all(story.engine, story.run)
    assert registered_name(story.run) == f"{live.pipeline}.replay"
    assert alias(client, live.pipeline, "current") == row.partition_key
    assert alias(client, f"{live.pipeline}.replay", "current") == replayed.partition_key


@pytest.mark.soak("screens")
def test_an_alias_that_somebody_moved_stays_and_is_shown_until_it_is_deleted(
    tracker: Tracker, client: MlflowClient, live: Story
) -> None:
    rows = trained(live, [0.9, 0.5])
    tracker.sync_all(live.engine, live.run)
    client.set_registered_model_alias(live.pipeline, "champion", "2")
    client.delete_registered_model_alias(live.pipeline, "current")
    for _ in range(2):
        tracker.sync_trigger(live.engine, live.run, rows[1])
        assert alias(client, live.pipeline, "champion") == rows[1].partition_key
        drift = client.get_registered_model(live.pipeline).tags["modyn/drift/champion"]
        assert "was moved by hand to version 2; by the catalog it is version 1; delete it in MLflow" in drift
    assert alias(client, live.pipeline, "current") == rows[1].partition_key
    client.delete_registered_model_alias(live.pipeline, "champion")
    tracker.sync_trigger(live.engine, live.run, rows[1])
    assert alias(client, live.pipeline, "champion") == rows[0].partition_key
    assert "modyn/drift/champion" not in client.get_registered_model(live.pipeline).tags


@pytest.mark.soak("screens")
def test_a_sync_reads_the_newest_versions_and_older_ones_only_where_a_verdict_changed(
    tracker: Tracker, client: MlflowClient, live: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registered_models, "BLOCK", 3)
    monkeypatch.setattr(registered_models, "VERSIONS_ON_PAGE", 1)
    rows = trained(live, [0.5, 0.9, *[0.6] * 9])
    n_read, real = 0, MlflowClient.search_model_versions

    def counted(self: MlflowClient, *args: Any, **kwargs: Any) -> Any:
        nonlocal n_read
        found = real(self, *args, **kwargs)
        n_read += len(found)
        return found

    monkeypatch.setattr(MlflowClient, "search_model_versions", counted)
    tracker.sync_trigger(live.engine, live.run, rows[-1])
    n_read = 0
    later = live.train(120, year(12))
    live.score(later, {50: 0.7})
    tracker.sync_trigger(live.engine, live.run, later)
    # The last block, the champion, and the one on the page.
    assert n_read <= 3 + 1 + 1
    assert alias(client, live.pipeline, "champion") == rows[1].partition_key
    # A late sample changes an old score: the old verdict is told again.
    live.score(rows[1], {50: 0.55})
    tracker.sync_trigger(live.engine, live.run, later)
    assert alias(client, live.pipeline, "champion") == later.partition_key
    told = [version.tags["modyn/champion"] for version in versions(client, live.pipeline)]
    assert len(told) == 12
    assert "0.55" in told[1]
