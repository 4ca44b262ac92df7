"""Pipelines that promote models, in MLflow, in the catalog's history and in summaries: the champion is the live model."""

from datetime import datetime

import pytest
import sqlalchemy as sa
from mlflow import MlflowClient

from modyn_dagster.catalog.results.promotions import insert_promotions, live_at, promotion
from modyn_dagster.catalog.triggers import TriggerRow
from modyn_dagster.reporting.mlflow.tracker import Tracker
from modyn_dagster.reporting.summary import summarise_run
from tests.reporting.story import Story, year
from tests.reporting.test_registered_models import alias, client, day, trained, versions

__all__ = ["client"]


@pytest.fixture
def live(shared_engine: sa.Engine, story: Story) -> Story:
    return Story(shared_engine, story.pipeline, mode="live", promotion={"metric": "log_loss"})


def crowned(
    story: Story, row: TriggerRow, at: datetime, since: float, before: str | None = None, old: TriggerRow | None = None
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
                    "model_hash": f"hash-{story.run.id}-{each.ordinal}",
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


def test_without_promotion_nothing_is_served(story: Story) -> None:
    story.train(10, year(1))
    with story.engine.connect() as conn:
        summary = summarise_run(conn, story.run, "accuracy")
        rows = conn.execute(sa.select(promotion).where(promotion.c.run_id == story.run.id)).all()
    assert rows == []
    assert (summary.served, summary.promotions, "served" in summary.to_json()) == ((), None, False)
