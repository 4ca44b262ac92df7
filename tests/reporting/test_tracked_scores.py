"""Scores of slices and of composite models, and the data of a run, as MLflow shows and finds them."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlflow import MlflowClient
from mlflow.entities import DatasetInput, Metric, Run

from modyn_dagster.catalog.results.evaluations import EvaluationRow, list_evaluations
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.training_sets import find_training_set
from modyn_dagster.catalog.runs import get_run
from modyn_dagster.catalog.triggers import TriggerRow
from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.reporting.mlflow.series import MOST_SLICES, slice_name, slice_series, slice_tags
from modyn_dagster.reporting.mlflow.stream_time import StreamTime
from modyn_dagster.reporting.mlflow.tracker import Tracker
from modyn_dagster.reporting.scores import composite_series
from tests.examples import examples
from tests.reporting.story import Story, step, timestamp, year


@pytest.fixture(scope="module")
def client(mlflow_uri: str) -> MlflowClient:
    return open_client(mlflow_uri)


def points(client: MlflowClient, run_id: str, name: str) -> list[tuple[int, int, float]]:
    found: Sequence[Metric] = client.get_metric_history(run_id, name)
    return sorted((metric.step, metric.timestamp, metric.value) for metric in found)


def two_triggers(story: Story) -> tuple[TriggerRow, TriggerRow]:
    first, second = story.train(10, year(0.5)), story.train(20, year(2.5))
    for metric, scale in (("accuracy", 1.0), ("log_loss", -1.0)):
        story.score(first, {1: 0.5 * scale, 2: 0.25 * scale, 3: 0.125 * scale}, metric)
        story.score(second, {1: 0.75 * scale, 2: None, 3: 0.875 * scale}, metric)
    return first, second


def test_every_slice_is_a_series_over_the_intervals_beside_the_whole(
    tracker: Tracker, story: Story, client: MlflowClient
) -> None:
    row = story.train(10, year(0.5))
    story.score(row, {1: 0.5, 2: 0.25})
    story.score(row, {1: 0.75, 2: None}, subset="school=MIT")
    story.score(row, {2: 0.125}, subset="school=Fisk, Nashville")
    story.score(row, {2: 1.5}, "log_loss", subset="label=1")
    shown = tracker.sync_trigger(story.engine, story.run, row)
    assert points(client, shown, "evaluation/accuracy") == [(step(1), timestamp(1), 0.5), (step(2), timestamp(2), 0.25)]
    assert points(client, shown, "evaluation/accuracy by school/MIT") == [(step(1), timestamp(1), 0.75)]
    assert points(client, shown, "evaluation/log_loss by label/1") == [(step(2), timestamp(2), 1.5)]
    run = client.get_run(shown)
    [odd] = [name for name in run.data.metrics if "Fisk" in name]
    assert points(client, shown, odd) == [(step(2), timestamp(2), 0.125)]
    assert run.data.tags["modyn/slices"] == "3 of 3"
    story.score(row, {3: 0.5}, subset="school=MIT")
    assert tracker.sync_trigger(story.engine, story.run, row) == shown
    assert len(points(client, shown, "evaluation/accuracy by school/MIT")) == 2


@settings(max_examples=examples(25), deadline=None)
@given(values=st.lists(st.text(max_size=300), min_size=1, max_size=20, unique=True))
def test_mlflow_takes_the_name_of_any_slice_and_tells_all_apart(mlflow_uri: str, values: list[str]) -> None:
    names = [slice_name("accuracy", f"att/ri.bute={value}") for value in values]
    assert len(set(names)) == len(names)
    client = open_client(mlflow_uri)
    run = client.create_run("0").info.run_id
    client.log_batch(run, metrics=[Metric(name, 0.5, 0, 0) for name in names])
    assert client.get_run(run).data.metrics.keys() == set(names)


def test_only_so_many_slices_are_shown_and_it_is_said() -> None:
    interval = (year(0), year(1))
    subsets = [f"school={n:03d}" for n in range(MOST_SLICES + 5)]
    cells = [EvaluationRow(1, 0, *interval, "accuracy", 5, 0.5, None, False, subset=subset) for subset in subsets]
    assert len(slice_series(cells, StreamTime())) == MOST_SLICES
    assert slice_tags(cells) == {"modyn/slices": f"{MOST_SLICES} of {MOST_SLICES + 5}"}
    assert slice_tags([]) == {}


@pytest.mark.soak("screens")
def test_a_pipelines_run_has_the_scores_of_its_composite_models_by_interval(
    tracker: Tracker, story: Story, client: MlflowClient
) -> None:
    two_triggers(story)
    shown = tracker.sync_run(story.engine, story.run)
    with story.engine.connect() as conn:
        cells, models = list_evaluations(conn, story.run.id), list_models(conn, story.run.id)
    for metric in ("accuracy", "log_loss"):
        expected = composite_series(models, cells, metric)
        series = [(step(i), timestamp(i), s.value) for i, s in enumerate(expected.active, start=1) if s.value is not None]
        assert points(client, shown, f"evaluation/active {metric}") == series
        assert f"evaluation/trained {metric}" not in client.get_run(shown).data.metrics
    story.move(state="finished")
    assert tracker.sync_run(story.engine, story.run) == shown
    series = [(step(i), timestamp(i), s.value) for i, s in enumerate(expected.trained, start=1) if s.value is not None]
    assert points(client, shown, "evaluation/trained log_loss") == series


@pytest.mark.soak("screens")
def test_triggers_of_a_run_that_is_replaced_stand_below_the_new_one(tracker: Tracker, story: Story, client: MlflowClient) -> None:
    first, second = two_triggers(story)
    old = tracker.sync_all(story.engine, story.run)
    children = [trigger_run(client, story, row) for row in (first, second)]
    story.score(first, {1: 0.625})
    new = tracker.sync_run(story.engine, story.run)
    assert new != old
    with story.engine.connect() as conn:
        assert get_run(conn, story.run.id).mlflow_run_id == new
    for row, child in zip((first, second), children, strict=True):
        again = trigger_run(client, story, row)
        assert (again.info.run_id, again.data.tags["mlflow.parentRunId"]) == (child.info.run_id, new)


def trigger_run(client: MlflowClient, story: Story, row: TriggerRow) -> Run:
    experiment = client.get_experiment_by_name(story.pipeline)
    assert experiment is not None
    [found] = client.search_runs([experiment.experiment_id], f"tags.`modyn/trigger` = '{row.partition_key}'")
    return found


@pytest.mark.soak("screens")
def test_runs_are_found_by_pipeline_trigger_and_dagster_run(tracker: Tracker, story: Story, client: MlflowClient) -> None:
    first, second = two_triggers(story)
    parent = tracker.sync_run(story.engine, story.run, f"dagster of {story.pipeline}")
    children = [tracker.sync_trigger(story.engine, story.run, row) for row in (first, second)]
    everywhere = [experiment.experiment_id for experiment in client.search_experiments()]

    def found(tag: str, value: str) -> set[str]:
        return {run.info.run_id for run in client.search_runs(everywhere, f"tags.`{tag}` = '{value}'")}

    assert found("modyn/pipeline", story.pipeline) == {parent, *children}
    assert found("modyn/trigger", second.partition_key) == {children[1]}
    assert found("dagster/run_id", f"dagster of {story.pipeline}") == {parent}
    assert children[0] in found("dagster/run_id", str(first.dagster_run_id))
    assert found("mlflow.parentRunId", parent) == set(children)


def inputs_of(run: Run) -> list[DatasetInput]:
    assert run.inputs is not None
    return run.inputs.dataset_inputs


@pytest.mark.soak("screens")
def test_runs_name_the_data_they_were_made_from_once(tracker: Tracker, story: Story, client: MlflowClient) -> None:
    row = story.train(10, year(0.5), n_samples=7)
    for _ in range(2):
        run = client.get_run(tracker.sync_trigger(story.engine, story.run, row))
        parent = client.get_run(tracker.sync_run(story.engine, story.run))
    inputs = {tag.value: each.dataset for each in inputs_of(run) for tag in each.tags}
    assert len(inputs_of(run)) == 2
    with story.engine.connect() as conn:
        chosen = find_training_set(conn, row.id)
    assert chosen is not None
    training = inputs["training"]
    assert (training.name, training.digest) == ("d training set", chosen.checksum)
    assert json.loads(str(training.profile))["num_rows"] == 7
    assert json.loads(training.source) == {"uri": chosen.path, "after": chosen.after, "until": chosen.until}
    assert inputs["evaluation"].name == "d evaluate"
    assert {each.dataset.name for each in inputs_of(parent)} == {"d", "d evaluate"}


def test_a_trigger_without_a_training_set_has_what_it_is_judged_on_alone(
    tracker: Tracker, story: Story, client: MlflowClient
) -> None:
    run = client.get_run(tracker.sync_trigger(story.engine, story.run, story.fail(10)))
    assert [each.dataset.name for each in inputs_of(run)] == ["d evaluate"]
