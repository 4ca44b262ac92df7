"""Comparisons judge pipelines only where all of them could be judged."""

import json
from datetime import datetime
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.errors import ConfigError
from modyn_dagster.reporting.comparison import compare_pipelines, compare_runs
from modyn_dagster.reporting.scores import IntervalScore
from modyn_dagster.reporting.summary import RunSummary, TriggerCounts
from tests.reporting.story import Story, year


def a_score(start: int, value: float | None) -> IntervalScore:
    return IntervalScore(year(start), year(start + 1), value, None if value is not None else "why", 5, 0, False)


def a_summary(pipeline: str, scores: dict[int, float | None], metric: str = "accuracy", run_id: int = 1) -> RunSummary:
    active = tuple(a_score(start, value) for start, value in sorted(scores.items()))
    counts = TriggerCounts(1, 0, 0, 0)
    return RunSummary(pipeline, run_id, "replay", "", 0, "active", counts, 10, {"train": 1.0}, metric, (), active, active)


def starts(intervals: tuple[tuple[datetime, datetime], ...]) -> list[datetime]:
    return [start for start, _ in intervals]


SCORES = st.dictionaries(st.integers(0, 8), st.none() | st.floats(0, 1), max_size=9)


@given(st.lists(SCORES, min_size=1, max_size=4))
def test_means_are_over_the_intervals_that_all_runs_have_a_score_on(runs: list[dict[int, float | None]]) -> None:
    comparison = compare_runs([a_summary(f"p{i}", scores) for i, scores in enumerate(runs)])
    shared = [start for start in range(9) if all(run.get(start) is not None for run in runs)]
    assert starts(comparison.shared) == [year(start) for start in shared]
    assert comparison.n_intervals == len({start for run in runs for start in run})
    for compared, run in zip(comparison.runs, runs, strict=True):
        values = [run[start] for start in shared]
        mean = sum(value for value in values if value is not None) / len(shared) if shared else None
        assert compared.score == (None if mean is None else pytest.approx(mean))


def test_nothing_to_compare_is_a_comparison_too() -> None:
    comparison = compare_runs([], missing=["p"])
    assert (comparison.metric, comparison.runs, comparison.shared, comparison.missing) == (None, (), (), ("p",))


def test_runs_of_one_pipeline_are_told_apart_by_their_id() -> None:
    summaries = [a_summary("p", {}, run_id=1), a_summary("p", {}, run_id=2), a_summary("q", {}, run_id=3)]
    assert [run.label for run in compare_runs(summaries).runs] == ["p (run 1)", "p (run 2)", "q"]


def test_different_metrics_are_not_compared() -> None:
    with pytest.raises(ConfigError, match=r"one metric.*'p': 'accuracy', 'q': 'f1'"):
        compare_runs([a_summary("p", {}), a_summary("q", {}, "f1")])


def test_pipelines_are_compared_by_the_score_they_share(engine: sa.Engine) -> None:
    for name, value in (("p", 0.5), ("q", 0.25)):
        story = Story(engine, name, score="log_loss")
        story.score(story.train(10, year(0.5)), {1: value}, "log_loss")
    with engine.connect() as conn:
        comparison = compare_pipelines(conn, ["q", "p", "never"])
    assert comparison.metric == "log_loss"
    assert [(run.label, run.score) for run in comparison.runs] == [("q", 0.25), ("p", 0.5)]
    assert comparison.missing == ("never",)


@pytest.mark.parametrize("other", [{"score": "log_loss"}, {"metrics": ["f1", "accuracy"]}])
def test_pipelines_with_different_scores_are_compared_by_a_metric_all_have(engine: sa.Engine, other: dict[str, Any]) -> None:
    Story(engine, "p")
    Story(engine, "q", **other)
    with engine.connect() as conn:
        assert compare_pipelines(conn, ["p", "q"]).metric == "accuracy"


def test_pipelines_without_a_common_metric_cannot_be_compared(engine: sa.Engine) -> None:
    Story(engine, "p")
    Story(engine, "q", metrics=["f1"])
    with engine.connect() as conn:
        with pytest.raises(ConfigError, match="one metric in common"):
            compare_pipelines(conn, ["p", "q"])
        with pytest.raises(ConfigError, match="must hold 'f1'"):
            compare_pipelines(conn, ["p", "q"], metric="f1")


def test_a_comparison_is_plain_json() -> None:
    comparison = compare_runs([a_summary("p", {1: 0.5, 2: None}), a_summary("q", {1: 0.75})], missing=["r"])
    content = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert content["shared_intervals"] == [[year(1).isoformat(), year(2).isoformat()]]
    assert [run["mean_active_score_on_shared_intervals"] for run in content["runs"]] == [0.5, 0.75]
    assert content["missing"] == ["r"]
