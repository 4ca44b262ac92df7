"""Summaries of runs in the catalog, and which run stands for a pipeline."""

import json

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.runs import choose_run
from modyn_dagster.reporting.scores import NO_ACTIVE_MODEL
from modyn_dagster.reporting.summary import RunSummary, TriggerCounts, summarise_run
from tests.reporting.story import Story, year


def summary_of(story: Story, metric: str | None = None) -> RunSummary:
    with story.engine.connect() as conn:
        return summarise_run(conn, story.run, metric)


@pytest.fixture
def story(engine: sa.Engine) -> Story:
    """Two trained triggers, one skipped, one failed, one under way; evaluated on four years."""
    story = Story(engine)
    first = story.train(10, year(1.5), n_samples=10)
    story.skip(20)
    second = story.train(30, year(3.5), n_samples=7)
    story.fail(40)
    story.pending(50)
    story.score(first, {1: 0.9, 2: 0.8, 3: 0.6, 4: 0.5})
    story.score(first, {2: 0.1}, "log_loss")
    story.score(second, {1: 0.7, 2: 0.7, 3: 0.9, 4: None})
    return story


def test_a_summary_counts_triggers_samples_and_seconds(story: Story) -> None:
    summary = summary_of(story)
    assert summary.triggers == TriggerCounts(trained=2, skipped=1, failed=1, unfinished=1)
    assert summary.samples_trained_on == 17
    assert summary.seconds == {"select": 1.0, "train": 4.0, "save": 0.25}
    assert summary.total_seconds == 5.25
    assert [model.train_end for model in summary.models] == [year(1.5), year(3.5)]


def test_a_summary_has_the_scores_of_both_composite_models(story: Story) -> None:
    summary = summary_of(story)
    assert summary.metric == "accuracy"
    assert [score.value for score in summary.active] == [None, 0.8, 0.6, None]
    assert [score.reason for score in summary.active] == [NO_ACTIVE_MODEL, None, None, "one class only"]
    assert [score.value for score in summary.trained] == [0.9, 0.7, 0.9, None]
    assert summary.mean_active == pytest.approx(0.7)
    assert summary.n_scored == 2


def test_the_metric_is_the_score_of_the_spec_unless_another_is_asked_for(engine: sa.Engine, story: Story) -> None:
    assert summary_of(Story(engine, "other", score="log_loss")).metric == "log_loss"
    asked = summary_of(story, "log_loss")
    assert [score.value for score in asked.active] == [0.1]


def test_a_run_without_triggers_has_a_summary(engine: sa.Engine) -> None:
    summary = summary_of(Story(engine))
    assert summary.triggers == TriggerCounts(0, 0, 0, 0)
    assert (summary.samples_trained_on, summary.total_seconds, summary.mean_active, summary.active) == (0, 0.0, None, ())


def test_a_summary_is_plain_json(story: Story) -> None:
    content = json.loads(json.dumps(summary_of(story).to_json(), allow_nan=False))
    assert content["triggers"] == {"trained": 2, "skipped": 1, "failed": 1, "unfinished": 1}
    assert content["mean_active_score"] == pytest.approx(0.7)
    assert [score["value"] for score in content["active"]] == [None, 0.8, 0.6, None]


def test_the_open_live_run_stands_for_a_pipeline_then_the_newest_replay_then_the_newest_run(engine: sa.Engine) -> None:
    def chosen() -> int | None:
        with engine.connect() as conn:
            run = choose_run(conn, "p")
        return None if run is None else run.id

    assert chosen() is None
    ended = Story(engine, mode="live")
    ended.move(state="ended")
    assert chosen() == ended.run.id
    replays = [Story(engine, seed=seed) for seed in (1, 2)]
    Story(engine, "other", mode="live")
    assert chosen() == replays[1].run.id
    live = Story(engine, mode="live")
    replays.append(Story(engine, seed=3))
    assert chosen() == live.run.id
