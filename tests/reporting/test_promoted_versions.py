"""Pipelines that promote models, in MLflow, in the catalog's history and in summaries: the champion is the live model."""

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from mlflow import MlflowClient

from modyn_dagster.catalog.results.models import model
from modyn_dagster.catalog.results.promotions import insert_promotions, live_at, promotion
from modyn_dagster.catalog.triggers import TriggerRow
from modyn_dagster.pipeline.operate.events import events_since
from modyn_dagster.reporting.mlflow.registry import registered_models
from modyn_dagster.reporting.mlflow.registry.withdrawn import mark_withdrawn
from modyn_dagster.reporting.mlflow.tracker import Tracker
from modyn_dagster.reporting.summary import summarise_run
from modyn_dagster.spec.notification.notify import NotifySpec, ScoreFloor
from tests.reporting.story import Story, year
from tests.reporting.test_registered_models import alias, client, day, trained, versions
from tests.variants import represented

__all__ = ["client"]


@pytest.fixture
def live(shared_engine: sa.Engine, story: Story) -> Story:
    return Story(shared_engine, story.pipeline, mode="live", promotion={"metric": "log_loss"})


def crowned(
    story: Story,
    row: TriggerRow,
    at: datetime,
    since: float,
    before: str | None = None,
    old: TriggerRow | None = None,
    model_hash: str = "",
) -> None:
    """A promotion as the gate commits it, at a moment of the clock and a year of the stream."""
    events = [(row, before, "champion", "better on 900 samples")]
    events += [(old, "champion", "retired", "there is another champion")] if old is not None else []
    with story.engine.begin() as conn:
        insert_promotions(
            conn,
            story.run.id,
            [
                {
                    "trigger_id": each.id,
                    "model_hash": model_hash or f"hash-{story.run.id}-{each.ordinal}",
                    "before": state_before,
                    "state": state,
                    "actor": "gate",
                    "reason": reason,
                    "batch": each.ordinal,
                    "time": year(since),
                    "created_at": at,
                }
                for each, state_before, state, reason in events
                if each is not None
            ],
        )


@pytest.mark.soak("screens")
def test_the_champion_has_the_alias_live_and_the_newest_model_does_not(
    tracker: Tracker, client: MlflowClient, live: Story
) -> None:
    first, second, third = trained(live, [0.8, 0.9, 0.7])
    crowned(live, first, day(0), 1)
    tracker.sync_all(live.engine, live.run)
    assert {which: alias(client, live.pipeline, which) for which in ("current", "champion", "live")} == {
        "current": third.partition_key,
        "champion": first.partition_key,
        "live": first.partition_key,
    }
    crowned(live, second, day(5), 3, "shadow", first)
    tracker.sync_models(live.engine, live.run)
    assert alias(client, live.pipeline, "live") == second.partition_key
    crowned(live, first, day(6), 4, "retired", second)
    tracker.sync_run(live.engine, live.run)
    assert alias(client, live.pipeline, "live") == first.partition_key
    assert [version.tags["modyn/champion"] for version in versions(client, live.pipeline)] == [
        "promoted: champion: better on 900 samples",
        "promoted: retired: there is another champion",
        "not promoted: the gate has not looked at it yet",
    ]


def test_behind_a_page_of_models_that_were_never_live_the_aliases_still_follow_the_catalog(
    tracker: Tracker, client: MlflowClient, live: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registered_models, "VERSIONS_ON_PAGE", 2)
    rows = trained(live, [0.8, 0.9, 0.7, 0.6])
    crowned(live, rows[0], day(0), 1)
    tracker.sync_models(live.engine, live.run)
    newest = live.train(90, year(9))
    tracker.sync_models(live.engine, live.run)
    assert alias(client, live.pipeline, "current") == newest.partition_key
    client.delete_registered_model_alias(live.pipeline, "champion")
    tracker.sync_models(live.engine, live.run)
    assert alias(client, live.pipeline, "champion") == rows[0].partition_key
    page = client.get_registered_model(live.pipeline).description.splitlines()
    assert page[2].startswith("| 1 | 2030-01-01 00:00:00 | now |"), "the only one that was live"


def test_before_the_gate_has_looked_at_the_first_model_of_a_run_the_aliases_stay_with_the_run_before(
    tracker: Tracker, client: MlflowClient, live: Story
) -> None:
    [first] = trained(live, [0.8])
    crowned(live, first, day(0), 1)
    tracker.sync_models(live.engine, live.run)
    live.move(state="finished")
    after = Story(live.engine, live.pipeline, mode="live", seed=1, promotion={"metric": "log_loss"})
    later = after.train(30, year(3))
    assert tracker.sync_models(after.engine, after.run) is None
    for which in ("current", "champion", "live"):
        assert alias(client, live.pipeline, which) == first.partition_key
    crowned(after, later, day(9), 3)
    assert tracker.sync_models(live.engine, live.run) is None
    assert tracker.sync_models(after.engine, after.run) is not None
    for which in ("current", "champion", "live"):
        assert alias(client, live.pipeline, which) == later.partition_key


@represented("heir", {"an earlier champion": 0, "nobody": None}, "screens", "an earlier champion")
def test_a_champion_that_a_deletion_has_withdrawn_leaves_its_aliases_to_its_heir_or_to_nobody(
    tracker: Tracker, client: MlflowClient, live: Story, heir: int | None
) -> None:
    rows = trained(live, [0.8, 0.9, 0.7])
    crowned(live, rows[0], day(0), 1)
    crowned(live, rows[1], day(5), 3, "shadow", rows[0])
    tracker.sync_models(live.engine, live.run)
    with live.engine.begin() as conn:
        conn.execute(sa.text("delete from evaluation where trigger_id = :id"), {"id": rows[1].id})
        conn.execute(sa.delete(model).where(model.c.trigger_id == rows[1].id))
    live.move(champion_model=None if heir is None else f"hash-{live.run.id}-{rows[heir].ordinal}")
    mark_withdrawn(client, live.pipeline, {f"hash-{live.run.id}-{rows[1].ordinal}"}, "deletion request 1")
    tracker.sync_models(live.engine, live.run)
    expected = {"current": "3"} | ({} if heir is None else {"champion": "1", "live": "1"})
    assert {which: str(n) for which, n in client.get_registered_model(live.pipeline).aliases.items()} == expected


def test_who_was_live_when_is_the_same_in_the_catalog_and_in_mlflow_through_a_rollback(tracker: Tracker, live: Story) -> None:
    first, second, _ = trained(live, [0.8, 0.9, 0.7])
    crowned(live, first, day(0), 1)
    crowned(live, second, day(5), 3, "shadow", first)
    crowned(live, first, day(9), 4, "retired", second)
    tracker.sync_all(live.engine, live.run)
    expected = {0: first, 4.9: first, 5: second, 8.9: second, 9: first, 1000: first}
    for moment, row in expected.items():
        found = tracker.live_at(live.pipeline, day(moment))
        assert found is not None
        with live.engine.connect() as conn:
            known = live_at(conn, live.pipeline, day(moment))
        assert known == (row.id, found.since)
        assert found.trigger == row.partition_key
    assert tracker.live_at(live.pipeline, day(-1)) is None


def test_the_served_composite_is_the_champion_of_the_time(live: Story) -> None:
    first, second = live.train(10, year(1)), live.train(20, year(2))
    live.score(first, {2: 0.5, 3: 0.5, 4: 0.5, 5: 0.5})
    live.score(second, {3: 0.9, 4: 0.9, 5: 0.9})
    crowned(live, first, day(0), 2)
    crowned(live, second, day(1), 3.5, "shadow", first)
    with live.engine.connect() as conn:
        summary = summarise_run(conn, live.run, "accuracy")
        served = [(score.start.year, score.trigger, score.value) for score in summary.served]
    assert served == [(1902, 0, 0.5), (1903, 0, 0.5), (1904, 1, 0.9), (1904, 1, 0.9)]
    assert summary.promotions is not None
    assert (summary.promotions.promoted, summary.promotions.rolled_back) == (1, 0)
    assert summary.mean_active is not None
    assert summary.mean_served is not None
    assert summary.mean_served < summary.mean_active


@pytest.mark.parametrize(("live_model", "told"), [("champion", [0.3, 0.4]), ("newest", [0.1])])
def test_notifications_judge_the_live_model_on_each_interval(
    shared_engine: sa.Engine, story: Story, live_model: str, told: list[float]
) -> None:
    live = Story(shared_engine, story.pipeline, mode="live", promotion={"metric": "log_loss"}, live=live_model)
    first, second, third = live.train(10, year(1)), live.train(20, year(2)), live.train(30, year(3))
    live.score(first, {3: 0.3, 4: 0.9, 5: 0.35})
    live.score(second, {3: 0.9, 4: 0.8, 5: 0.4})
    live.score(third, {3: 0.9, 4: 0.1, 5: 0.9})
    crowned(live, first, datetime.now(UTC), 2)
    crowned(live, second, datetime.now(UTC), 4.5, "shadow", first)
    below = ScoreFloor.model_validate({"metric": "accuracy", "floor": 0.5})
    with live.engine.connect() as conn:
        events = events_since(conn, live.run, "d", NotifySpec(hook="tests.pipeline.hooks:hook", score_below=below), day(-20_000))
        bad = [event for event in events if event.kind == "score_below"]
    assert [event.score for event in bad] == told
    assert all("of the live model is below 0.5" in event.text for event in bad)


def test_without_promotion_nothing_is_served(story: Story) -> None:
    story.train(10, year(1))
    with story.engine.connect() as conn:
        summary = summarise_run(conn, story.run, "accuracy")
        rows = conn.execute(sa.select(promotion).where(promotion.c.run_id == story.run.id)).all()
    assert rows == []
    assert (summary.served, summary.promotions, "served" in summary.to_json()) == ((), None, False)
