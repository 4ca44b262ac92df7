"""Registered versions after kills, after people were in MLflow, and beside other runs; and who was live at the edges of time."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
import sqlalchemy as sa
from mlflow import MlflowClient

from modyn_dagster.catalog.results.models import model
from modyn_dagster.catalog.results.promotions import live_model
from modyn_dagster.catalog.triggers import TriggerRow
from modyn_dagster.errors import TrackingError
from modyn_dagster.reporting.mlflow.registry import registered_models
from modyn_dagster.reporting.mlflow.tracker import Tracker
from tests.reporting.story import Story, year
from tests.reporting.test_registered_models import alias, client, day, live, trained, versions
from tests.variants import represented

__all__ = ["client", "live"]

MICROSECOND = timedelta(microseconds=1)


def went_live(story: Story, rows: list[TriggerRow], moments: list[datetime]) -> None:
    with story.engine.begin() as conn:
        for row, moment in zip(rows, moments, strict=True):
            conn.execute(sa.update(model).where(model.c.trigger_id == row.id).values(created_at=moment))


def keys(client: MlflowClient, story: Story) -> list[str]:
    return [version.tags["modyn/trigger"] for version in versions(client, story.pipeline)]


@represented("gone", {"the first": 0, "the champion": 1, "the newest": 2}, "screens", "the champion")
def test_a_version_that_was_deleted_by_hand_comes_back(tracker: Tracker, client: MlflowClient, live: Story, gone: int) -> None:
    rows = trained(live, [0.8, 0.9, 0.7])
    tracker.sync_all(live.engine, live.run)
    client.delete_model_version(live.pipeline, str(gone + 1))
    tracker.sync_trigger(live.engine, live.run, rows[2])
    assert sorted(keys(client, live)) == [row.partition_key for row in rows]
    assert alias(client, live.pipeline, "current") == rows[2].partition_key
    assert alias(client, live.pipeline, "champion") == rows[1].partition_key
    # Its number is another one; when it was live is not.
    for n, row in enumerate(rows):
        found = tracker.live_at(live.pipeline, day(n))
        assert found is not None
        assert (found.trigger, found.since) == (row.partition_key, day(n))
    page = client.get_registered_model(live.pipeline).description.splitlines()
    assert [line.split(" | ")[3] for line in page[2:5]] == [row.partition_key for row in rows[::-1]]
    tracker.sync_trigger(live.engine, live.run, rows[2])
    assert len(keys(client, live)) == 3


@pytest.mark.soak("screens")
def test_a_version_that_was_deleted_behind_the_page_comes_back_when_there_is_more_to_tell_of_it(
    tracker: Tracker, client: MlflowClient, live: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registered_models, "BLOCK", 3)
    monkeypatch.setattr(registered_models, "VERSIONS_ON_PAGE", 1)
    rows = trained(live, [0.5, 0.9, *[0.6] * 6])
    tracker.sync_all(live.engine, live.run)
    client.delete_model_version(live.pipeline, "1")
    client.delete_model_version(live.pipeline, "2")
    tracker.sync_trigger(live.engine, live.run, rows[-1])
    assert sorted(keys(client, live)) == [row.partition_key for row in rows[1:]], "the champion is needed"
    live.score(rows[0], {50: 0.95})
    tracker.sync_trigger(live.engine, live.run, rows[-1])
    assert sorted(keys(client, live)) == [row.partition_key for row in rows]
    assert alias(client, live.pipeline, "champion") == rows[0].partition_key
    for _ in range(2):
        tracker.sync_all(live.engine, live.run)
    assert len(keys(client, live)) == len(rows)


@pytest.mark.soak("screens")
def test_all_of_it_deleted_comes_back(tracker: Tracker, client: MlflowClient, live: Story) -> None:
    rows = trained(live, [0.5, 0.6])
    tracker.sync_all(live.engine, live.run)
    client.delete_registered_model(live.pipeline)
    tracker.sync_trigger(live.engine, live.run, rows[1])
    assert keys(client, live) == [row.partition_key for row in rows]
    assert alias(client, live.pipeline, "champion") == rows[1].partition_key


@pytest.mark.soak("screens")
def test_versions_of_others_are_let_alone(tracker: Tracker, client: MlflowClient, live: Story) -> None:
    client.create_registered_model(live.pipeline)
    client.create_model_version(live.pipeline, "modyn-model:///by-hand", await_creation_for=0)
    odd = {"modyn/trigger": "x", "modyn/model": "y", "modyn/live_from": "yesterday"}
    client.create_model_version(live.pipeline, "modyn-model:///odd", tags=odd, await_creation_for=0)
    [row] = trained(live, [0.5])
    tracker.sync_all(live.engine, live.run)
    found = tracker.live_at(live.pipeline, day(0))
    assert found is not None
    assert (found.trigger, found.version) == (row.partition_key, 3)
    assert alias(client, live.pipeline, "current") == row.partition_key
    assert len(versions(client, live.pipeline)) == 3
    assert client.get_registered_model(live.pipeline).description.splitlines()[2].startswith("| 3 | 2030-01-01 00:00:00 | now |")


@pytest.mark.soak("screens")
@pytest.mark.parametrize("method", ["set_registered_model_alias", "set_model_version_tag", "update_registered_model"])
def test_a_kill_after_a_version_was_registered_is_made_up_for(
    tracker: Tracker, client: MlflowClient, live: Story, method: str
) -> None:
    rows = trained(live, [0.5, 0.6])

    def killed(*args: object, **kwargs: object) -> None:
        raise OSError("the process was killed")

    tracker.sync_trigger(live.engine, live.run, rows[0])
    later = live.train(90, year(9))
    live.score(later, {50: 0.9})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MlflowClient, method, killed)
        with pytest.raises(TrackingError, match="killed"):
            tracker.sync_trigger(live.engine, live.run, later)
    for _ in range(2):
        tracker.sync_trigger(live.engine, live.run, later)
    assert keys(client, live) == [row.partition_key for row in (*rows, later)]
    for which in ("current", "champion"):
        assert alias(client, live.pipeline, which) == later.partition_key
    assert "0.9" in versions(client, live.pipeline)[2].tags["modyn/champion"]


@pytest.mark.soak("screens")
def test_training_a_trigger_again_registers_nothing_and_a_failed_check_moves_nothing(
    tracker: Tracker, client: MlflowClient, live: Story
) -> None:
    rows = trained(live, [0.8, 0.7, 0.6])
    for row in (*rows, *rows[::-1]):
        tracker.sync_trigger(live.engine, live.run, row, "another Dagster run")
        assert alias(client, live.pipeline, "champion") == rows[0].partition_key
    assert keys(client, live) == [row.partition_key for row in rows]
    assert [version.tags["modyn/champion"].partition(":")[0] for version in versions(client, live.pipeline)] == [
        "promoted",
        "not promoted",
        "not promoted",
    ]


@pytest.mark.soak("screens")
def test_a_late_sync_of_an_earlier_run_leaves_the_aliases_to_the_run_that_is_live(
    tracker: Tracker, client: MlflowClient, live: Story
) -> None:
    rows = trained(live, [0.5, 0.9])
    tracker.sync_all(live.engine, live.run)
    live.move(state="finished")
    after = Story(live.engine, live.pipeline, mode="live", seed=1)
    [newest] = trained(after, [0.7])
    went_live(after, [newest], [day(5)])
    tracker.sync_all(after.engine, after.run)
    live.score(rows[0], {51: 0.99})
    tracker.sync_all(live.engine, live.run)
    for which in ("current", "champion"):
        assert alias(client, live.pipeline, which) == newest.partition_key
    found = [tracker.live_at(live.pipeline, day(n)) for n in (0, 1, 4, 5)]
    assert [each.trigger for each in found if each] == [each.partition_key for each in (*rows, rows[1], newest)]


def test_two_pipelines_know_nothing_of_each_other(tracker: Tracker, client: MlflowClient, live: Story) -> None:
    other = Story(live.engine, f"{live.pipeline}_too", mode="live")
    ours, theirs = trained(live, [0.5, 0.6]), trained(other, [0.9, 0.1])
    for n in range(2):
        tracker.sync_trigger(live.engine, live.run, ours[n])
        tracker.sync_trigger(other.engine, other.run, theirs[n])
    assert (keys(client, live), keys(client, other)) == tuple([row.partition_key for row in each] for each in (ours, theirs))
    assert alias(client, live.pipeline, "champion") == ours[1].partition_key
    assert alias(client, other.pipeline, "champion") == theirs[0].partition_key
    found = tracker.live_at(other.pipeline, day(1))
    assert found is not None
    assert found.trigger == theirs[1].partition_key


@pytest.mark.soak("screens")
def test_a_version_is_live_from_its_moment_on_to_the_microsecond_in_any_time_zone(
    tracker: Tracker, client: MlflowClient, live: Story
) -> None:
    rows = trained(live, [0.5, 0.6, 0.7, 0.8])
    switch = datetime(2030, 3, 31, 1, 59, 59, 999_999, tzinfo=UTC)
    # The last two went live at the same moment: the later trigger's counts.
    went_live(live, rows, [switch, switch + MICROSECOND, day(200), day(200)])
    tracker.sync_all(live.engine, live.run)
    expected = [(switch - MICROSECOND, None), (switch, 0), (switch + MICROSECOND, 1), (day(200) - MICROSECOND, 1), (day(200), 3)]
    for moment, n in expected:
        for zone in (UTC, timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(hours=-11))):
            found = tracker.live_at(live.pipeline, moment.astimezone(zone))
            assert (found and found.trigger) == (None if n is None else rows[n].partition_key)
            with live.engine.begin() as conn:
                known = live_model(conn, live.pipeline, moment.astimezone(zone))
            assert (known and known.hash) == (found and found.model)
        # Without a zone it is a moment in UTC.
        assert tracker.live_at(live.pipeline, moment.replace(tzinfo=None)) == tracker.live_at(live.pipeline, moment)
    page = [line.split(" | ")[1:4] for line in client.get_registered_model(live.pipeline).description.splitlines()[2:6]]
    assert page[3] == ["2030-03-31 01:59:59.999999", "2030-03-31 02:00:00", rows[0].partition_key]
    assert [line[0] for line in page[:2]] == [page[1][1]] * 2, "one of the two was never live"
