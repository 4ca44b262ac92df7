"""Comparisons judge pipelines only where all of them could be judged."""

import json
import statistics
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.errors import ConfigError
from modyn_dagster.reporting.comparison import compare_pipelines, compare_runs
from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.reporting.scores import IntervalScore
from modyn_dagster.reporting.seed_spread import Spread
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


def test_seeds_of_one_pipeline_are_compared_run_by_run_and_by_their_spread(engine: sa.Engine) -> None:
    for seed, value in ((3, 0.5), (0, 0.25), (1, 0.9)):
        story = Story(engine, "p", seed=seed)
        story.score(story.train(10, year(0.5), n_samples=10 + seed), {1: value, 2: value})
    other = Story(engine, "q")
    other.score(other.train(10, year(0.5)), {1: 0.5, 2: None})
    with engine.connect() as conn:
        comparison = compare_pipelines(conn, ["p", "q"])
    assert [run.label for run in comparison.runs] == ["p (seed 0)", "p (seed 1)", "p (seed 3)", "q"]
    assert starts(comparison.shared) == [year(1)]
    [spread] = comparison.spreads
    assert (spread.pipeline, spread.seeds, spread.triggers) == ("p", (0, 1, 3), Spread(1.0, 0.0))
    for found, values in ((spread.samples_trained_on, [10, 11, 13]), (spread.score, [0.25, 0.9, 0.5])):
        assert found is not None
        assert (found.mean, found.deviation) == pytest.approx((statistics.mean(values), statistics.stdev(values)))
    assert spread.n_bytes is None
    assert json.loads(json.dumps(comparison.to_json()))["seeds"][0]["score"]["mean"] == pytest.approx(0.55)


def test_what_is_not_known_of_one_seed_has_no_spread() -> None:
    summaries = [replace(a_summary("p", {1: 0.5}), seed=0, n_bytes=5), replace(a_summary("p", {2: 0.5}), seed=1)]
    [spread] = compare_runs(summaries).spreads
    assert (spread.score, spread.n_bytes) == (None, None)


def test_runs_of_equal_seeds_are_no_spread() -> None:
    assert compare_runs([a_summary("p", {1: 0.5}, run_id=1), a_summary("p", {1: 0.5}, run_id=2)]).spreads == ()


def test_mlflow_takes_the_names_of_all_scores(mlflow_uri: str) -> None:
    seeds = [replace(a_summary("p", {1: 0.5}), seed=0), replace(a_summary("p", {1: 0.75}), seed=1)]
    comparison = compare_runs([*seeds, a_summary("q", {1: 1.0}, run_id=2), a_summary("q", {1: 0.0}, run_id=3)])
    client = open_client(mlflow_uri)
    run = client.create_run("0").info.run_id
    for name, value in comparison.numbers().items():
        client.log_metric(run, name, value)
    assert client.get_run(run).data.metrics == comparison.numbers()
    assert len(comparison.numbers()) == 6
    assert comparison.numbers()["score p mean"] == 0.625


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
