"""MLflow shows what the catalog says, once, whatever happened before."""

import threading
from collections.abc import Callable
from itertools import pairwise

import pytest
import sqlalchemy as sa
from mlflow import MlflowClient
from mlflow.entities import Metric, Run, ViewType

from modyn_dagster.catalog import runs, triggers
from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.models import find_model
from modyn_dagster.catalog.runs import pipeline_run
from modyn_dagster.catalog.triggers import TriggerRow, trigger
from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.reporting.mlflow.series import MOST_LOSSES
from modyn_dagster.reporting.mlflow.tracker import Tracker
from tests.reporting.story import START, YEAR, Story, step, timestamp, year
from tests.variants import represented


@pytest.fixture
def client(mlflow_uri: str) -> MlflowClient:
    return open_client(mlflow_uri)


@pytest.fixture
def shown(client: MlflowClient, story: Story) -> Callable[[], list[Run]]:
    """All runs in the story's experiment, its trash left out: parents first, then triggers in order."""

    def find() -> list[Run]:
        found = client.search_runs([experiment_of(client, story)])
        return sorted(found, key=lambda run: run.data.tags.get("modyn/trigger", ""))

    return find


def experiment_of(client: MlflowClient, story: Story) -> str:
    experiment = client.get_experiment_by_name(story.pipeline)
    assert experiment is not None
    return str(experiment.experiment_id)


def scored(story: Story) -> TriggerRow:
    """A trained trigger with two metrics on four years, one cell undefined."""
    row = story.train(10, year(1.5))
    story.score(row, {1: 0.9, 2: 0.8, 3: None, 4: 1 / 3})
    story.score(row, {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}, "log_loss")
    return row


def points(client: MlflowClient, run_id: str, name: str) -> list[tuple[int, float]]:
    return sorted((metric.step, metric.value) for metric in client.get_metric_history(run_id, name))


def test_a_trigger_is_a_run_below_its_pipelines_run(tracker: Tracker, story: Story, shown: Callable[[], list[Run]]) -> None:
    row = story.train(10, year(1.5), score=0.25, threshold=0.5)
    run_id = tracker.sync_trigger(story.engine, story.run, row, "dagster-1", "http://dagster/runs/1")
    parent, child = shown()
    assert child.info.run_id == run_id
    assert child.info.run_name == row.partition_key
    assert child.info.status == "FINISHED"
    tags = {
        "mlflow.parentRunId": parent.info.run_id,
        "modyn/kind": "trigger",
        "modyn/pipeline": story.pipeline,
        "modyn/run": str(story.run.id),
        "modyn/trigger": row.partition_key,
        "modyn/model": f"hash-{story.run.id}-0",
        "dagster/run_id": "dagster-1",
        "dagster/partition": row.partition_key,
    }
    assert tags.items() <= child.data.tags.items()
    assert "[Dagster run](http://dagster/runs/1)" in child.data.tags["mlflow.note.content"]
    params = {
        "trigger.key": "10",
        "trigger.reason": "sample 10",
        "window.after": "-1",
        "window.until": "10",
        "n_samples": "10",
        "seed": "0",
        "threads": "1",
        "training.model.name": "mlp",
        "training.model.hidden": "[4]",
        "model_hash": f"hash-{story.run.id}-0",
    }
    assert params.items() <= child.data.params.items()
    numbers = {"seconds/select": 0.5, "seconds/train": 2.0, "seconds/save": 0.125}
    assert numbers.items() <= child.data.metrics.items()
    assert (child.data.metrics["trigger/score"], child.data.metrics["trigger/threshold"]) == (0.25, 0.5)


def test_a_pipelines_run_shows_its_spec_cost_and_score(tracker: Tracker, story: Story, shown: Callable[[], list[Run]]) -> None:
    scored(story)
    run_id = tracker.sync_run(story.engine, story.run, "dagster-1")
    parent, child = shown()
    assert (parent.info.run_id, child.data.tags["mlflow.parentRunId"]) == (run_id, run_id)
    tags = {
        "modyn/kind": "run",
        "modyn/pipeline": story.pipeline,
        "modyn/run": str(story.run.id),
        "modyn/mode": "replay",
        "modyn/spec_hash": story.run.spec_hash,
        "dagster/run_id": "dagster-1",
    }
    assert tags.items() <= parent.data.tags.items()
    params = {"trigger.kind": "amount", "trigger.every": "10", "training.features": '["a", "b"]', "run.mode": "replay"}
    assert params.items() <= parent.data.params.items()
    numbers = {"triggers": 1.0, "samples_trained_on": 10.0, "seconds/total": 2.625}
    assert numbers.items() <= parent.data.metrics.items()
    assert parent.data.metrics["mean_active/accuracy"] == pytest.approx((0.8 + 1 / 3) / 2)


@pytest.mark.soak("screens")
def test_a_runs_sync_shows_the_triggers_that_an_absent_mlflow_missed_and_no_others(
    tracker: Tracker, story: Story, client: MlflowClient, shown: Callable[[], list[Run]]
) -> None:
    row = story.train(10, year(1))
    missed = tracker.sync_trigger(story.engine, story.run, row)
    story.score(row, {1: 0.5})
    tracker.sync_run(story.engine, story.run)
    assert points(client, missed, "evaluation/accuracy") == []
    with story.engine.begin() as conn:
        triggers.forget_mlflow_runs(conn, [row.id])
    skipped, failed = story.skip(20), story.fail(30)
    story.pending(40)
    tracker.sync_run(story.engine, story.run)
    assert points(client, missed, "evaluation/accuracy") == [(step(1), 0.5)]
    triggers_shown = [run.data.tags["modyn/trigger"] for run in shown()[1:]]
    assert triggers_shown == [row.partition_key, skipped.partition_key, failed.partition_key], "each once, none before its time"


@pytest.mark.parametrize("state", ["active", "waiting", "finished", "ended"])
def test_a_run_is_running_until_it_is_finished_or_ended(
    tracker: Tracker, story: Story, shown: Callable[[], list[Run]], state: str
) -> None:
    finished = state in ("finished", "ended")
    story.move(state=state, **({"finished_at": year(130)} if finished else {}))
    tracker.sync_run(story.engine, story.run)
    (parent,) = shown()
    assert parent.info.status == ("FINISHED" if finished else "RUNNING")
    assert parent.data.tags["modyn/state"] == state


def test_metrics_are_the_catalogs_cells_and_their_times_the_intervals(
    tracker: Tracker, story: Story, client: MlflowClient
) -> None:
    row = scored(story)
    run_id = tracker.sync_trigger(story.engine, story.run, row)
    with story.engine.connect() as conn:
        cells = list_evaluations(conn, story.run.id, row.id)
    assert client.get_run(run_id).data.tags["modyn/time_shift"] == "400 years later", "MLflow refuses times before 1970"
    found = {
        (name, metric.timestamp, metric.value)
        for name in ("accuracy", "log_loss")
        for metric in client.get_metric_history(run_id, f"evaluation/{name}")
    }
    years = {cell: (cell.interval_start - year(0)) / YEAR for cell in cells}
    assert found == {(cell.metric, timestamp(years[cell]), cell.value) for cell in cells if cell.value is not None}
    assert [at for at, _ in points(client, run_id, "evaluation/accuracy")] == [step(1), step(2), step(4)]


def test_times_after_1970_are_themselves(tracker: Tracker, story: Story, client: MlflowClient) -> None:
    row = story.train(10, year(80))
    story.score(row, {90: 0.5, 91: 0.25})
    run_id = tracker.sync_trigger(story.engine, story.run, row)
    stamps = [metric.timestamp for metric in client.get_metric_history(run_id, "evaluation/accuracy")]
    assert stamps == [year(90).timestamp() * 1000, year(91).timestamp() * 1000]


@pytest.mark.soak("screens")
def test_all_triggers_count_the_same_intervals(tracker: Tracker, story: Story, client: MlflowClient) -> None:
    first, second = story.train(10, year(1)), story.train(20, year(3))
    story.score(first, dict.fromkeys(range(8), 0.5))
    story.score(second, {5: 0.75})
    tracker.sync_all(story.engine, story.run)
    assert points(client, tracker.sync_trigger(story.engine, story.run, second), "evaluation/accuracy") == [(step(5), 0.75)]


def losses_of(story: Story, row: TriggerRow) -> list[tuple[int, float]]:
    with story.engine.connect() as conn:
        model = find_model(conn, row.id)
    assert model is not None
    return [(step, loss) for step, loss in model.curve]


@pytest.mark.parametrize("steps", [1, 2, MOST_LOSSES - 1, MOST_LOSSES])
def test_a_loss_curve_is_whole(tracker: Tracker, story: Story, client: MlflowClient, steps: int) -> None:
    row = story.train(10, year(1), steps=steps)
    run_id = tracker.sync_trigger(story.engine, story.run, row)
    assert points(client, run_id, "training/loss") == losses_of(story, row)
    assert points(client, run_id, "training/epoch_loss") == [(1, 0.5), (2, 0.25)]


@pytest.mark.parametrize("steps", [MOST_LOSSES + 1, 1000])
def test_a_long_loss_curve_is_thinned_evenly_from_first_to_last(
    tracker: Tracker, story: Story, client: MlflowClient, steps: int
) -> None:
    row = story.train(10, year(1), steps=steps)
    shown, all_of_them = (
        points(client, tracker.sync_trigger(story.engine, story.run, row), "training/loss"),
        losses_of(story, row),
    )
    assert len(shown) == MOST_LOSSES
    assert set(shown) <= set(all_of_them)
    assert (shown[0], shown[-1]) == (all_of_them[0], all_of_them[-1])
    gaps = {later - sooner for (sooner, _), (later, _) in pairwise(shown)}
    assert max(gaps) - min(gaps) <= 1


@pytest.mark.soak("screens")
def test_more_points_than_mlflow_takes_in_one_call_arrive(tracker: Tracker, story: Story, client: MlflowClient) -> None:
    row = story.train(10, year(1))
    values = {n: n / 4096 for n in range(2345)}
    story.score(row, values)
    run_id = tracker.sync_trigger(story.engine, story.run, row)
    assert points(client, run_id, "evaluation/accuracy") == [(step(n), value) for n, value in values.items()]


@pytest.mark.soak("screens")
def test_showing_again_changes_nothing(
    tracker: Tracker, story: Story, client: MlflowClient, shown: Callable[[], list[Run]]
) -> None:
    scored(story)
    first = tracker.sync_all(story.engine, story.run)
    before = [run.to_dictionary() for run in shown()]
    histories = {name: client.get_metric_history(shown()[1].info.run_id, name) for name in shown()[1].data.metrics}
    assert tracker.sync_all(story.engine, story.run) == first
    assert [run.to_dictionary() for run in shown()] == before
    assert {name: client.get_metric_history(shown()[1].info.run_id, name) for name in histories} == histories


def forget_ids(story: Story) -> None:
    with story.engine.begin() as conn:
        conn.execute(sa.update(pipeline_run).where(pipeline_run.c.id == story.run.id).values(mlflow_run_id=None))
        conn.execute(sa.update(trigger).where(trigger.c.run_id == story.run.id).values(mlflow_run_id=None))


def test_a_kill_before_the_ids_were_stored_makes_no_second_run(
    tracker: Tracker, story: Story, shown: Callable[[], list[Run]]
) -> None:
    row = scored(story)
    ids = [tracker.sync_run(story.engine, story.run), tracker.sync_trigger(story.engine, story.run, row)]
    forget_ids(story)
    assert tracker.sync_trigger(story.engine, story.run, row) == ids[1]
    assert tracker.sync_run(story.engine, story.run) == ids[0]
    assert [run.info.run_id for run in shown()] == ids
    with story.engine.connect() as conn:
        assert runs.get_run(conn, story.run.id).mlflow_run_id == ids[0]
        assert triggers.get_trigger(conn, row.id).mlflow_run_id == ids[1]


@pytest.mark.soak("screens")
def test_a_kill_while_points_were_sent_is_made_up(tracker: Tracker, story: Story, client: MlflowClient) -> None:
    parent = tracker.sync_run(story.engine, story.run)
    row = scored(story)
    other = Story(story.engine, f"{story.pipeline}_undisturbed", seed=1)
    expected = tracker.sync_trigger(other.engine, other.run, scored(other))
    # What a kill leaves: the run with its tags, and some of the points.
    tags = {name: value for name, value in client.get_run(parent).data.tags.items() if name.startswith("modyn/")}
    tags |= {"modyn/kind": "trigger", "modyn/trigger": row.partition_key}
    half = client.create_run(experiment_of(client, story), tags=tags).info.run_id
    sent = client.get_metric_history(expected, "evaluation/accuracy")[:2]
    client.log_batch(half, metrics=[Metric(metric.key, metric.value, metric.timestamp, metric.step) for metric in sent])
    assert tracker.sync_trigger(story.engine, story.run, row) == half
    for name in ("evaluation/accuracy", "evaluation/log_loss", "training/loss", "training/epoch_loss"):
        assert points(client, half, name) == points(client, expected, name)


def test_later_and_earlier_intervals_are_added(tracker: Tracker, story: Story, client: MlflowClient) -> None:
    row = story.train(10, year(1.5))
    run_id = tracker.sync_trigger(story.engine, story.run, row)
    for first, last in ((2, 3), (2, 6), (0, 6)):
        story.score(row, {n: n / 10 for n in range(first, last)})
        assert tracker.sync_trigger(story.engine, story.run, row) == run_id
        assert points(client, run_id, "evaluation/accuracy") == [(step(n), n / 10) for n in range(first, last)]


def test_the_description_keeps_the_link_to_dagster(tracker: Tracker, story: Story, client: MlflowClient) -> None:
    row = story.train(10, year(1.5))
    run_id = tracker.sync_trigger(story.engine, story.run, row, "dagster-1", "http://dagster/runs/1")
    tracker.sync_trigger(story.engine, story.run, row)
    assert "http://dagster/runs/1" in client.get_run(run_id).data.tags["mlflow.note.content"]


@represented(
    "again",
    {"other value": {2: 0.75}, "undefined now": {2: None}, "all undefined now": dict.fromkeys((1, 2, 4))},
    "screens",
    "undefined now",
)
def test_a_run_that_shows_what_is_no_longer_true_is_replaced(
    tracker: Tracker, story: Story, client: MlflowClient, shown: Callable[[], list[Run]], again: dict[int, float | None]
) -> None:
    row = scored(story)
    old = tracker.sync_trigger(story.engine, story.run, row)
    story.score(row, again)
    new = tracker.sync_trigger(story.engine, story.run, row)
    assert new != old
    with story.engine.connect() as conn:
        cells = list_evaluations(conn, story.run.id, row.id)
        assert triggers.get_trigger(conn, row.id).mlflow_run_id == new
    values = [cell.value for cell in cells if cell.metric == "accuracy" and cell.value is not None]
    assert [value for _, value in points(client, new, "evaluation/accuracy")] == values
    assert [run.info.run_id for run in shown()][1:] == [new]
    assert client.get_run(old).info.lifecycle_stage == "deleted"


def test_an_experiment_says_how_to_read_it_and_keeps_what_a_person_writes(
    tracker: Tracker, story: Story, client: MlflowClient
) -> None:
    def note() -> str:
        tracker.sync_run(story.engine, story.run)
        return str(client.get_experiment(experiment_of(client, story)).tags["mlflow.note.content"])

    ours = note()
    assert all(
        part in ours
        for part in (f"**{story.pipeline}** on the dataset `d`.", "A story.", "evaluation/active accuracy", "Time (wall)")
    )
    client.set_experiment_tag(experiment_of(client, story), "mlflow.note.content", ours.replace("A story.", "An older story."))
    assert note() == ours
    client.set_experiment_tag(experiment_of(client, story), "mlflow.note.content", "Mine.")
    assert note() == "Mine."


@pytest.mark.soak("screens")
def test_seconds_grow_without_replacing_the_run(tracker: Tracker, story: Story, client: MlflowClient) -> None:
    row = scored(story)
    run_id = tracker.sync_trigger(story.engine, story.run, row)
    with story.engine.begin() as conn:
        story.spend(conn, row, {"train": 0.5, "evaluate": 4.0})
    assert tracker.sync_trigger(story.engine, story.run, row) == run_id
    metrics = client.get_run(run_id).data.metrics
    assert (metrics["seconds/train"], metrics["seconds/evaluate"]) == (2.5, 4.0)


def test_a_failed_trigger_fails_and_after_a_resume_finishes_in_the_same_run(
    tracker: Tracker, story: Story, client: MlflowClient
) -> None:
    row = story.fail(10, "the loss is nan")
    run_id = tracker.sync_trigger(story.engine, story.run, row)
    failed = client.get_run(run_id)
    assert (failed.info.status, failed.data.tags["modyn/error"]) == ("FAILED", "the loss is nan")
    with story.engine.begin() as conn:
        row = triggers.reopen(conn, row, max_attempts=1)
    tracker.sync_trigger(story.engine, story.run, row)
    assert client.get_run(run_id).info.status == "SCHEDULED"
    with story.engine.begin() as conn:
        triggers.finish(conn, triggers.claim(conn, row, "dagster-2"), "skipped")
    assert tracker.sync_trigger(story.engine, story.run, row) == run_id
    finished = client.get_run(run_id)
    assert (finished.info.status, finished.data.tags["modyn/error"]) == ("FINISHED", "")
    assert (finished.data.tags["modyn/state"], finished.data.tags["modyn/attempt"]) == ("skipped", "2")


@pytest.mark.soak("screens")
def test_what_a_person_deleted_in_mlflow_is_shown_again(
    tracker: Tracker, story: Story, client: MlflowClient, shown: Callable[[], list[Run]]
) -> None:
    row = scored(story)
    tracker.sync_all(story.engine, story.run)
    for run in shown():
        client.delete_run(run.info.run_id)
    client.delete_experiment(experiment_of(client, story))
    tracker.sync_all(story.engine, story.run)
    assert len(shown()) == 2
    parent, child = shown()
    assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert client.get_experiment(experiment_of(client, story)).lifecycle_stage == "active"
    assert points(client, child.info.run_id, "evaluation/accuracy") == [(step(1), 0.9), (step(2), 0.8), (step(4), 1 / 3)]
    with story.engine.connect() as conn:
        assert triggers.get_trigger(conn, row.id).mlflow_run_id == child.info.run_id


def test_a_stored_id_that_mlflow_does_not_know_is_replaced(
    tracker: Tracker, story: Story, shown: Callable[[], list[Run]]
) -> None:
    with story.engine.begin() as conn:
        runs.set_mlflow_run(conn, story.run.id, "0" * 32)
    run_id = tracker.sync_run(story.engine, story.run)
    assert [run.info.run_id for run in shown()] == [run_id]
    assert tracker.sync_run(story.engine, story.run) == run_id


def test_runs_of_another_catalog_with_equal_ids_are_not_mistaken_for_ours(
    tracker: Tracker, story: Story, shown: Callable[[], list[Run]]
) -> None:
    theirs = tracker.sync_run(story.engine, story.run)
    with story.engine.begin() as conn:
        as_theirs = {"mlflow_run_id": None, "created_at": START}
        conn.execute(sa.update(pipeline_run).where(pipeline_run.c.id == story.run.id).values(as_theirs))
    ours = tracker.sync_run(story.engine, story.run)
    assert {run.info.run_id for run in shown()} == {theirs, ours}
    assert theirs != ours


@pytest.mark.soak("screens")
def test_two_at_once_make_one_run(tracker: Tracker, story: Story, shown: Callable[[], list[Run]]) -> None:
    row = scored(story)
    ready = threading.Barrier(3)
    failures: list[BaseException] = []

    def show() -> None:
        ready.wait()
        try:
            tracker.sync_trigger(story.engine, story.run, row)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=show) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(shown()) == 2


def test_the_whole_run_is_made_up_by_one_call(
    tracker: Tracker, story: Story, client: MlflowClient, shown: Callable[[], list[Run]]
) -> None:
    scored(story)
    story.skip(20)
    story.fail(30)
    story.train(40, year(3))
    tracker.sync_all(story.engine, story.run)
    assert [run.info.status for run in shown()] == ["RUNNING", "FINISHED", "FINISHED", "FAILED", "FINISHED"]
    assert len(client.search_runs([experiment_of(client, story)], run_view_type=ViewType.ALL)) == 5


def test_addresses_lead_to_the_run_in_mlflows_pages(tracker: Tracker, story: Story, client: MlflowClient) -> None:
    run_id = tracker.sync_run(story.engine, story.run)
    experiment = experiment_of(client, story)
    assert tracker.url_of(run_id) == f"http://127.0.0.1:5000/#/experiments/{experiment}/runs/{run_id}"
