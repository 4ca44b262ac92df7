"""The asset ``measurement``, and the sensor that asks for it."""

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from modyn_dagster.assets.dagster_runs import MEASUREMENT_TAG
from modyn_dagster.assets.metadata.entries import DETAILS, rounded
from modyn_dagster.catalog.decisions import DecisionRow, list_decisions
from modyn_dagster.catalog.runs import RunRow, list_runs
from modyn_dagster.catalog.triggers import list_triggers
from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.reporting.mlflow.stream_time import milliseconds
from tests.dagster.face import Face, deliver, error_of
from tests.projects.tiny import DATASET, ROOT, amount, batch_text, triggered, write_pipeline, write_project

NAME = "by_drift"
SENSOR = f"triggering__{NAME}"
DRIFT = {
    "kind": "drift",
    "every": 20,
    "windows": {"by": "amount", "reference": 60, "current": 30},
    "features": {"of": "columns"},
    "metrics": {"mmd": {"metric": "mmd"}, "ks": {"metric": "ks"}},
    "aggregate": {"at_least": 1},
    "decision": {"rule": "threshold", "value": 0.4},
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_project(tmp_path / "project", [triggered(NAME, DRIFT), amount(every=60)])


@pytest.fixture
def first_model(face: Face, ingested: list[str]) -> str | None:
    """The first trigger is trained; the sensor's cursor afterwards."""
    ticked = face.tick(SENSOR)
    [request] = ticked.requests
    result = face.launch(request)
    assert result.success, error_of(result)
    return ticked.cursor


def run_of(face: Face, mode: str) -> RunRow:
    with face.platform.transaction() as conn:
        return [run for run in list_runs(conn, NAME) if run.mode == mode][-1]


def decisions(face: Face, mode: str) -> list[DecisionRow]:
    with face.platform.transaction() as conn:
        return list_decisions(conn, run_of(face, mode).id)


def produce(face: Face, cursor: str | None) -> list[dg.RunRequest]:
    """Tick and launch until nothing is asked for."""
    asked: list[dg.RunRequest] = []
    while (ticked := face.tick(SENSOR, cursor)).requests:
        for request in ticked.requests:
            result = face.launch(request)
            assert result.success, error_of(result)
        asked, cursor = [*asked, *ticked.requests], ticked.cursor
    return asked


def test_only_pipelines_that_measure_have_the_asset_and_its_job(face: Face) -> None:
    keys = {spec.key.to_user_string() for spec in face.defs.resolve_all_asset_specs()}
    assert f"{NAME}/measurement" in keys
    assert "by_amount/measurement" not in keys
    jobs = {job.name for job in face.defs.jobs or []}
    assert f"measure__{NAME}" in jobs
    assert "measure__by_amount" not in jobs
    [spec] = [spec for spec in face.defs.resolve_all_asset_specs() if spec.key == dg.AssetKey([NAME, "measurement"])]
    assert {dep.asset_key.to_user_string() for dep in spec.deps} == {"tiny/samples", f"{NAME}/model"}


@pytest.mark.soak("production")
def test_the_sensor_asks_for_one_measurement_run_at_a_time(face: Face, first_model: str | None) -> None:
    ticked = face.tick(SENSOR, first_model)
    [request] = ticked.requests
    run = run_of(face, "live")
    assert (request.job_name, request.partition_key) == (f"measure__{NAME}", "day_00")
    point = request.tags["modyn/point"]
    assert request.run_key == f"{NAME}:measurement:{point}:{run.previous_model}:1"
    assert [again.run_key for again in face.tick(SENSOR, ticked.cursor).requests] == [request.run_key]
    waiting = face.instance.create_run_for_job(face.defs.resolve_job_def("retention"), tags=dict(request.tags))
    under_way = face.tick(SENSOR, ticked.cursor)
    assert under_way.requests == []
    assert "a measurement is under way" in str(under_way.skipped)
    face.instance.report_run_failed(waiting)
    assert "failed 1 times" in str(face.tick(SENSOR, ticked.cursor).skipped)
    face.instance.delete_run(waiting.run_id)
    assert produce(face, ticked.cursor)
    assert len(decisions(face, "live")) == 6


@pytest.mark.soak("screens")
def test_a_measurement_run_that_was_killed_is_asked_for_again(face: Face, first_model: str | None) -> None:
    [request] = face.tick(SENSOR, first_model).requests
    killed = face.instance.create_run_for_job(face.defs.resolve_job_def("retention"), tags=dict(request.tags))
    face.instance.report_run_failed(killed)
    again: list[dg.RunRequest] = []
    while not again:
        again = list(face.tick(SENSOR, first_model).requests)
    assert again[0].run_key == str(request.run_key)[:-1] + "2"
    assert face.launch(again[0]).success
    assert decisions(face, "live")[1:] == []
    produce(face, first_model)
    assert len(decisions(face, "live")) == 6


def test_live_and_replay_decide_the_same_and_show_it_on_the_measurement_asset(face: Face, first_model: str | None) -> None:
    deliver(face.settings.project, "day_03", batch_text(3, shift=4))
    for request in face.tick("new_data__tiny", face.tick("new_data__tiny").cursor).requests:
        assert face.launch(request).success
    asked = produce(face, first_model)
    jobs = [request.job_name for request in asked]
    assert jobs == [f"measure__{NAME}", f"train__{NAME}"] * 2 + [f"evaluate__{NAME}"]
    shown = face.materializations(NAME, "measurement")
    assert list(shown) == ["day_00", "day_01", "day_02", "day_03"]
    last = shown["day_03"]
    assert (last["points"], last["fired"]) == (1, 1), "the second of its points; the first one was shown before"
    assert last["chart"].startswith("![live run")
    assert list(last)[:4] == ["Decision score", "Decision threshold", "Reason", "Score over time"]
    assert "| sample time | fires | score | threshold | reason |" in last["decisions"]
    result = face.materialize((NAME, "replay"), batches=("day_00", "day_03"))
    assert result.success, error_of(result)
    assert [plain(row) for row in decisions(face, "live")] == [plain(row) for row in decisions(face, "replay")]
    replayed = face.materializations(NAME, "measurement")
    assert list(replayed) == list(shown)
    assert replayed["day_03"]["chart"].startswith("![replay run")
    assert "chart" not in replayed["day_01"], "large pictures come with triggers and in the end"
    for row in (shown, replayed):
        assert row["day_01"]["points"] == 2
    assert replayed["day_03"]["decisions"].count("| yes |") == 2


@pytest.mark.soak("screens")
def test_a_training_set_shows_window_scores_and_thresholds(face: Face, ingested: list[str]) -> None:
    deliver(face.settings.project, "day_03", batch_text(3, shift=4))
    for request in face.tick("new_data__tiny", face.tick("new_data__tiny").cursor).requests:
        assert face.launch(request).success
    assert face.materialize((NAME, "replay"), batches=("day_00", "day_03")).success
    first, second, *_ = face.materializations(NAME, "training_set").values()
    assert first["Reason"] == "no model yet"
    before, after = first[DETAILS], second[DETAILS]
    assert "measured" not in before
    assert "metrics see drift" in second["Reason"]
    assert second["Decision score"] >= second["Decision threshold"] == 0.4
    measured = after["measured"][""]
    assert second["Decision score"] in (rounded(measured["mmd"]), rounded(measured["ks"]))
    assert measured["current_window"]["until"] == after["trigger_key"]
    assert measured["reference_window"]["until"] == before["trigger_key"]
    assert set(after["decision"]["metrics"]) == {"mmd", "ks"}


@pytest.mark.soak("screens")
@pytest.mark.process
def test_scores_of_a_run_are_in_mlflow_and_no_plotting_library_is_loaded(face: Face, ingested: list[str], tmp_path: Path) -> None:
    strategy = {"strategy": {"kind": "rtbs", "n": 60, "decay": {"keep": 0.5, "after": "1d"}}, "partition_size": 16}
    write_pipeline(face.settings.project, triggered(NAME, DRIFT, selection=strategy))
    deliver(face.settings.project, "day_03", batch_text(3, shift=4))
    for request in face.tick("new_data__tiny", face.tick("new_data__tiny").cursor).requests:
        assert face.launch(request).success
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    shown = run_program(
        face,
        f"""
    instance.add_dynamic_partitions("batches/tiny", {[*ingested, "day_03"]!r})
    assert face.materialize(({NAME!r}, "replay"), batches=("day_00", "day_03")).success
    kinds = [list(face.materializations({NAME!r}, name).values())[-1] for name in ("measurement", "training_set")]
    assert "image/svg+xml" in kinds[0]["chart"] and "image/svg+xml" in kinds[1]["fill_chart"]
    print(*[run.tags["mlflow/run_id"] for run in instance.get_runs()], "matplotlib" in sys.modules)
""",
        MODYN_MLFLOW_URI=uri,
    )
    parent, plotted = shown.split()
    assert plotted == "False"
    client = open_client(uri)
    scored = [row for row in decisions(face, "replay") if row.score is not None]
    history = client.get_metric_history(parent, "decision/score")
    assert [(point.timestamp, point.value) for point in history] == [(milliseconds(row.time), row.score) for row in scored]
    assert {point.step // 1000 for point in history} == {2024}
    assert {point.value for point in client.get_metric_history(parent, "decision/threshold")} == {0.4}


def run_program(face: Face, body: str, **environment: str) -> str:
    """Run the body of a program with ``face`` and ``instance`` in a process of its own; what it prints."""
    program = f"""
import sys
import dagster as dg
from modyn_dagster.settings import Settings
from tests.dagster.face import Face
with dg.DagsterInstance.ephemeral() as instance:
    face = Face(Settings.from_environment(), instance)
{body}"""
    command = [sys.executable, "-c", program]
    everything = {**os.environ, **face.settings.environment(), **environment}
    result = subprocess.run(command, cwd=ROOT, env=everything, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.soak("screens")
def test_a_partition_that_dagster_has_not_heard_of_is_added(face: Face, first_model: str | None) -> None:
    face.instance.delete_dynamic_partition("batches/tiny", "day_00")
    face.instance.delete_dynamic_partition("batches/tiny", "day_02")
    assert [request.partition_key for request in face.tick(SENSOR, first_model).requests] == ["day_00"]
    assert set(face.partitions("batches/tiny")) == {"day_00", "day_01", "day_02"}


@pytest.mark.soak("screens")
def test_ticks_that_decide_from_measurements_load_no_torch(face: Face, first_model: str | None) -> None:
    [request] = face.tick(SENSOR, first_model).requests
    assert face.launch(request).success
    heavy = {"torch", "mlflow", "matplotlib", "scipy", "sklearn", "alibi_detect"}
    body = f"""
    face.tick({SENSOR!r}, {first_model!r})
    print(*sorted({heavy!r} & set(sys.modules)))
"""
    assert run_program(face, body) == "\n"
    assert len(decisions(face, "live")) == 6


@pytest.mark.soak("screens")
def test_a_hand_launched_measurement_measures_from_where_the_live_run_stands(face: Face, first_model: str | None) -> None:
    result = face.materialize((NAME, "measurement"), batches=("day_00", "day_02"))
    assert result.success, error_of(result)
    assert list(face.materializations(NAME, "measurement")) == ["day_00", "day_01", "day_02"]
    assert face.instance.get_runs(dg.RunsFilter(tags={MEASUREMENT_TAG: NAME})) == []
    assert [request.job_name for request in face.tick(SENSOR, first_model).requests] != [f"measure__{NAME}"]
    assert len(decisions(face, "live")) == 6


def test_a_measurement_that_cannot_be_made_fails_its_run_naming_what(face: Face, ingested: list[str]) -> None:
    error = error_of(face.materialize((NAME, "measurement"), partition="day_00"))
    assert "no open live run" in error
    with face.platform.transaction() as conn:
        assert [row for run in list_runs(conn, NAME) for row in list_triggers(conn, run.id)] == []
    assert DATASET == "tiny"


def plain(row: DecisionRow) -> tuple[object, ...]:
    return row.point, row.key, row.time, row.fire, row.reason, row.score, row.threshold, row.details
