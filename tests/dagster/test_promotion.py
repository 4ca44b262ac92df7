"""The champion of a pipeline in Dagster: its asset, the check with the test, and the job with which people decide."""

import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest

from modyn_dagster.assets.metadata.champions import champion_check
from modyn_dagster.assets.metadata.entries import DETAILS
from modyn_dagster.build import build_definitions
from modyn_dagster.catalog.database.urls import database_url
from modyn_dagster.catalog.results.promotions import PromotionRow, gate_of, list_promotions
from modyn_dagster.catalog.runs import RunRow, list_runs, live_run
from modyn_dagster.evaluation.promotion.state import ROLLBACK, GateState
from modyn_dagster.pipeline.promotion.actions import act
from modyn_dagster.pipeline.promotion.decided_trial import decided_trial
from modyn_dagster.reporting.promotion.live_history import read_history
from modyn_dagster.reporting.promotion.tables import live_table
from modyn_dagster.reporting.tables import ABSENT
from modyn_dagster.settings import Settings
from tests.conftest import TEMPLATE, RunningServer
from tests.dagster.conftest import opened
from tests.dagster.face import Face, deliver, error_of
from tests.projects.tiny import DATASET, amount, batch_text, write_pipeline, write_project

PIPELINE = "asked"
TRIGGERING = f"triggering__{PIPELINE}"
RULES = {"metric": "accuracy", "min_samples": 10, "confidence": 0.6, "approve": "manual"}
CHAMPION = (PIPELINE, "champion")
PIPELINES = [amount(PIPELINE, every=60) | {"promotion": RULES}, amount("plain", every=60)]
DAYS = 7


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_project(tmp_path / "project", PIPELINES)


@pytest.fixture
def lived(postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    """Seven days of production through the sensors; a test goes on from there."""
    folder = tmp_path_factory.mktemp("promoting")
    project = write_project(folder / "project", PIPELINES)
    settings = postgres_server.settings(project, folder / "home", f"d{secrets.token_hex(4)}_")
    database = str(database_url(settings, "modyn").database)
    postgres_server.create_database(database, TEMPLATE)
    with dg.DagsterInstance.ephemeral() as instance, opened(Face(settings, instance)) as face:
        cursor = None
        for day in range(DAYS):
            deliver(project, f"day_{day:02d}", batch_text(day))
            for request in face.tick("new_data__tiny", face.tick("new_data__tiny").cursor).requests:
                assert face.launch(request).success
            cursor = produce(face, cursor)
        yield face
    postgres_server.drop_database(database)


def produce(face: Face, cursor: str | None) -> str | None:
    while (ticked := face.tick(TRIGGERING, cursor)).requests:
        for request in ticked.requests:
            result = face.launch(request)
            assert result.success, error_of(result)
        cursor = ticked.cursor
    return ticked.cursor


def run_of(face: Face) -> RunRow:
    with face.platform.transaction() as conn:
        run = live_run(conn, PIPELINE)
    assert run is not None
    return run


def champions(face: Face) -> list[PromotionRow]:
    with face.platform.transaction() as conn:
        return [event for event in list_promotions(conn, run_of(face).id) if event.state == "champion"]


def shown(face: Face) -> list[dict[str, Any]]:
    """Metadata of every materialization of the champion, the oldest first."""
    records = face.instance.fetch_materializations(dg.AssetKey(CHAMPION), limit=100, ascending=True).records
    events = [record.asset_materialization for record in records]
    return [{name: value.value for name, value in event.metadata.items()} for event in events if event is not None]


def checks(face: Face) -> list[tuple[bool, str, dict[str, Any]]]:
    """Results of the check, the oldest first."""
    key = dg.AssetCheckKey(dg.AssetKey(CHAMPION), "better_by_test")
    records = face.instance.event_log_storage.get_asset_check_execution_history(key, limit=100)
    entries = [record.event.get_dagster_event() for record in reversed(records) if record.event is not None]
    found = [entry.asset_check_evaluation_data for entry in entries]
    return [(each.passed, str(each.description), {name: value.value for name, value in each.metadata.items()}) for each in found]


def in_state(face: Face, state: str) -> list[int]:
    with face.platform.transaction() as conn:
        found = GateState.of_json(gate_of(conn, run_of(face).id).state)
    return [each.trigger for each in found.candidates if each.state == state]


def launched(face: Face, **config: Any) -> dg.ExecuteInProcessResult:
    job = face.defs.resolve_job_def(f"promotion__{PIPELINE}")
    run_config = {"ops": {f"{PIPELINE}__promotion": {"config": config}}}
    return job.execute_in_process(run_config, instance=face.instance, raise_on_error=False)


@pytest.mark.soak("screens")
def test_the_job_says_what_is_wrong_and_rejects(lived: Face) -> None:
    face = lived
    [_], [passed], shadow = champions(face), in_state(face, "passed"), in_state(face, "shadow")[0]
    assert "name the model to promote" in error_of(launched(face, action="promote", trigger="", who="ann"))
    assert "there is none to go back to" in error_of(launched(face, action="rollback", who="ann"))
    assert "must be the name of a person" in error_of(launched(face, action="promote", trigger=str(passed), who=" "))
    assert "000009-000001" in error_of(launched(face, action="promote", trigger="000009-000001", who="ann"))
    assert "promotion: at: must be a time like 2026-03-31" in error_of(launched(face, action="rollback", at="noon", who="ann"))
    assert "had no champion at 1999-01-01" in error_of(launched(face, action="rollback", at="1999-01-01", who="ann"))
    both = launched(face, action="rollback", at="2026-01-01", trigger="0", who="ann")
    assert "must be named in one way: by its id, by its trigger, or by a time" in error_of(both)
    result = launched(face, action="reject", trigger=f"{run_of(face).id:06d}-{shadow:06d}", who="ann")
    assert result.success, error_of(result)
    assert shadow not in in_state(face, "shadow")
    assert len(shown(face)) == 1


def observed(face: Face) -> list[dict[str, Any]]:
    """Metadata of every observation of the champion, the oldest first."""
    records = face.instance.fetch_observations(dg.AssetKey(CHAMPION), limit=100, ascending=True).records
    events = [record.asset_observation for record in records]
    return [{name: value.value for name, value in event.metadata.items()} for event in events if event is not None]


@pytest.mark.soak("screens")
def test_what_was_live_when_has_the_scores_of_now_though_the_champion_stays(lived: Face) -> None:
    face = lived
    [change], scores = shown(face), observed(face)
    assert change["what was live when"].splitlines()[2].endswith(f"| {ABSENT} |"), "at its promotion it had no score"
    with face.platform.transaction() as conn:
        found = read_history(conn, run_of(face))
    assert found is not None
    now = found.periods[-1]
    assert now.score is not None
    assert (scores[-1]["Score then"], scores[-1]["intervals"]) == (float(f"{now.score:.4g}"), now.n_intervals)
    assert f"{now.score:.4f} ({now.n_intervals})" in scores[-1]["what was live when"]
    assert [each["intervals"] for each in scores] == sorted({each["intervals"] for each in scores}), "only what is new is shown"
    again = face.materialize(CHAMPION)
    assert again.success, error_of(again)
    assert (len(shown(face)), observed(face)) == (1, scores)


@pytest.mark.soak("screens")
def test_every_change_is_shown_once_whoever_made_it_and_the_check_has_the_picture_of_the_test(lived: Face) -> None:
    face = lived
    run, [first] = run_of(face), champions(lived)
    assert [(each["Trigger"], each["Who"]) for each in shown(face)] == [(first.partition_key, "gate")]
    passed = in_state(face, "passed")[-1]
    result = launched(face, action="promote", trigger=str(passed), note="the numbers are right", who="ann")
    assert result.success, error_of(result)
    newest = champions(face)[-1]
    row = shown(face)[-1]
    assert (row["Champion"], row["Trigger"], row["Reason"], row["Who"]) == (
        *(newest.model_hash[:12], newest.partition_key),
        *("the numbers are right", "ann"),
    )
    assert row["pairs"] >= 10
    assert row["lower_bound"] > row["margin"] == 0
    assert "| the first model |" in row["what was live when"]
    assert (row[DETAILS]["model"], row[DETAILS]["event"]) == (newest.model_hash, newest.number)
    passed_check, sentence, metadata = checks(face)[-1]
    assert passed_check
    assert sentence.startswith("ann approved it (the numbers are right): on ")
    assert metadata["test"].startswith("![asked ")
    assert "data:image/png;base64," in metadata["test"]

    # From the command line, and by a process that was killed before it could show it.
    act(face.platform, run_of(face), "rollback", None, "bob", "a complaint")
    assert len(shown(face)) == 2
    cursor = produce(face, None)
    assert [each["Who"] for each in shown(face)] == ["gate", "ann", "bob"]
    act(face.platform, run_of(face), "promote", passed, "bob", "no complaint")
    act(face.platform, run_of(face), "rollback", None, "bob", "another complaint")
    produce(face, cursor)
    reasons = [each["Reason"] for each in shown(face)]
    assert reasons[2:] == ["rolled back by hand: a complaint", "no complaint", "rolled back by hand: another complaint"]
    assert [each[DETAILS]["event"] for each in shown(face)] == [each.number for each in champions(face)]
    again = face.materialize(CHAMPION)
    assert again.success, error_of(again)
    produce(face, None)
    assert len(shown(face)) == len(champions(face)) == 5
    # Dagster keeps the last result of a run, and the last evaluation has shown two changes.
    assert [each[0] for each in checks(face)] == [True] * 5
    chosen = "bob chose it, without a test that it passed: rolled back by hand: another complaint"
    assert [each[1] for each in checks(face)[3:]] == [chosen] * 2

    with face.platform.transaction() as conn:
        events = list_promotions(conn, run.id)
    by_rule = replace(newest, actor=ROLLBACK, before="retired", action=None, verdict=None, reason="its score was bad")
    warned = champion_check(dg.AssetKey(CHAMPION), face.platform, run, events, by_rule)
    assert (warned.passed, warned.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert warned.description == "No test made this model the champion: its score was bad"

    # The picture is that of the pairs that the gate had: the last bounds are those of its verdict.
    trial = decided_trial(face.platform, run, events, newest)
    assert trial is not None
    path, verdict = trial.result.path, trial.result.verdict
    assert path is not None
    assert verdict.bounds is not None
    assert (int(path.n[-1]), trial.incumbent) == (verdict.n, first)
    assert verdict.difference is not None
    np.testing.assert_allclose(
        [path.mean[-1], path.lower[-1], path.upper[-1]], [verdict.difference, verdict.bounds.lower, verdict.bounds.upper]
    )


@pytest.mark.soak("screens")
def test_a_replay_shows_its_champions_with_their_history_where_the_pipeline_was_never_live(face: Face, project: Path) -> None:
    days = [f"day_{day:02d}" for day in range(DAYS)]
    write_pipeline(project, amount(PIPELINE, every=60) | {"promotion": RULES | {"approve": "automatic"}})
    for day, key in enumerate(days):
        deliver(project, key, batch_text(day))
    face.tick("new_data__tiny", face.tick("new_data__tiny").cursor)
    for asset in ((DATASET, "samples"), (PIPELINE, "replay")):
        result = face.materialize(asset, batches=(days[0], days[-1]))
        assert result.success, error_of(result)
    with face.platform.transaction() as conn:
        [run] = list_runs(conn, PIPELINE)
        found, events = read_history(conn, run), list_promotions(conn, run.id)
    assert found is not None
    champions = [event for event in events if event.state == "champion"]
    assert len(champions) > 1
    assert [(each["Trigger"], each["Reason"]) for each in shown(face)] == [
        (each.partition_key, each.reason) for each in champions
    ]
    [(passed, sentence, _)] = checks(face)  # Dagster keeps the last result of a run.
    assert (passed, sentence) == (True, champions[-1].reason)
    # All changes were shown at the end, with the scores of the end.
    assert (shown(face)[-1]["what was live when"], observed(face)) == (live_table(found).markdown(), [])
    assert [each.period.began.number for each in found.periods] == [each.number for each in champions]
    assert all(each.score is not None for each in found.periods[:-1])


def test_pipelines_that_promote_have_the_asset_with_its_check_and_the_job_and_no_others_have(project: Path, home: Path) -> None:
    defs = build_definitions(project, settings=Settings(project, home))
    specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
    assert "plain/champion" not in specs
    champion = specs["asked/champion"]
    assert champion.partitions_def is None
    assert [dep.asset_key.to_user_string() for dep in champion.deps] == ["asked/evaluation"]
    jobs = {job.name for job in defs.jobs or []}
    assert "promotion__asked" in jobs
    assert "promotion__plain" not in jobs
    consumer = dg.asset(name="consumer", deps=[champion.key])(lambda: None)
    dg.Definitions.validate_loadable(dg.Definitions.merge(defs, dg.Definitions(assets=[consumer])))
