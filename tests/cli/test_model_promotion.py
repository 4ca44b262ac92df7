"""``model promote``, ``reject``, ``rollback`` and ``history`` on a live pipeline whose promotions a person approves."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result

from modyn_dagster.catalog.results import promotions
from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.promotions import PromotionRow, gate_of, list_promotions, move_gate
from modyn_dagster.catalog.runs import get_run, live_run, move_run, pipeline_run
from modyn_dagster.cli import main
from modyn_dagster.evaluation.promotion.succession import crowned
from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.reporting.page.records import read_report
from modyn_dagster.reporting.promotion.live_history import read_history
from modyn_dagster.reporting.promotion.tables import live_table
from tests.conftest import TEMPLATE, RunningServer
from tests.pipeline.world import World, make_world
from tests.projects.tiny import amount

RULES = {"metric": "accuracy", "min_samples": 10, "confidence": 0.6, "approve": "manual"}
DAYS = 7


@pytest.fixture(scope="module")
def lived(postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A live run with candidates of which some have passed, and a pipeline that promotes nothing and has not run."""
    folder = tmp_path_factory.mktemp("promoted")
    settings = postgres_server.settings(folder, folder / "home", "tpromoted_")
    postgres_server.create_database("tpromoted_modyn", TEMPLATE)
    pipelines = [amount("asked", every=60) | {"promotion": RULES}, amount("plain", every=60)]
    made = make_world(settings, folder / "project", pipelines)
    for day in range(DAYS):
        made.deliver([day])
        made.live_until_idle("asked")
    yield made
    made.close()
    postgres_server.drop_database("tpromoted_modyn")


@pytest.fixture
def world(lived: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The world of ``lived``, which is as it was for every test."""
    for name, value in lived.settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COLUMNS", "400")
    with lived.platform.transaction() as conn:
        run = live_run(conn, "asked")
        assert run is not None
        gate, n_events = gate_of(conn, run.id), len(list_promotions(conn, run.id))
    yield lived
    with lived.platform.transaction() as conn:
        now = gate_of(conn, run.id)
        move_gate(conn, now, run.title, batch=gate.batch, state=gate.state)
        conn.execute(sa.delete(promotions.promotion).where(promotions.promotion.c.number >= n_events))
        conn.execute(sa.update(pipeline_run).values(mode="live"))
        move_run(conn, get_run(conn, run.id), champion_model=run.champion_model)


def model(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["model", *arguments])


def done(*arguments: str) -> str:
    result = model(*arguments)
    assert result.exit_code == 0, (result.stdout, result.stderr, result.exception)
    return result.stdout


def refused(*arguments: str) -> str:
    result = model(*arguments)
    assert result.exit_code == 1, (result.stdout, result.exception)
    assert result.stderr.count("\n") == 1
    return result.stderr


def events(world: World) -> list[PromotionRow]:
    with world.platform.transaction() as conn:
        return list_promotions(conn, world.run("asked", "live").id)


def in_state(world: World, state: str) -> list[PromotionRow]:
    last = {event.ordinal: event for event in events(world)}
    return [event for event in last.values() if event.state == state]


def shown() -> Any:
    return json.loads(done("history", "asked", "--json"))


@pytest.mark.soak("screens")
def test_a_passed_model_is_approved_by_its_id_and_rolled_back_and_the_history_says_who_and_why(world: World) -> None:
    [first], passed = in_state(world, "champion"), in_state(world, "passed")[-1]
    text = done("promote", passed.model_hash[:10], "--as", "ann", "--reason", "the numbers are right")
    assert f"model {passed.model_hash[:12]} of trigger {passed.partition_key} is champion now, passed before" in text
    assert f"model {first.model_hash[:12]} of trigger {first.partition_key} is retired now" in text
    assert "nothing to do" in done("promote", passed.partition_key, "--as", "ann")
    moment = events(world)[-1].created_at
    done("rollback", "asked", "--as", "bob", "--reason", "a customer complained")
    periods = [(each["trigger"], each["actor"], each["reason"], each["to"] is None) for each in shown()["live"]]
    assert periods == [
        (first.partition_key, "gate", "the first model", False),
        (passed.partition_key, "ann", "the numbers are right", False),
        (first.partition_key, "bob", "rolled back by hand: a customer complained", True),
    ]
    assert world.reread(first.run_id).champion_model == first.model_hash
    table = done("history", "asked")
    assert "What was live when: live run 1 of asked" in table
    assert "a customer complained" in table
    done("promote", "asked", "--at", moment.isoformat())
    assert shown()["live"][-1]["trigger"] == passed.partition_key
    done("rollback", "asked", "--to", first.model_hash[:12])
    assert world.reread(first.run_id).champion_model == first.model_hash
    done("promote", "asked", "--trigger", str(passed.ordinal))
    done("rollback", "asked", "--trigger", str(first.ordinal))
    assert [each["trigger"] for each in shown()["live"]].count(first.partition_key) == 4


def test_the_score_then_is_the_mean_of_the_cells_that_began_while_the_model_was_the_champion(world: World) -> None:
    [first], passed = in_state(world, "champion"), in_state(world, "passed")[-1]
    done("promote", passed.partition_key)
    later = [event for event in events(world) if event.state == "champion"][-1]
    assert first.time is not None
    assert later.time is not None
    with world.platform.transaction() as conn:
        cells = [
            cell.value
            for cell in list_evaluations(conn, first.run_id)
            if (cell.ordinal, cell.metric) == (first.ordinal, "accuracy")
            and cell.value is not None
            and first.time <= cell.interval_start < later.time
        ]
    period, now = shown()["live"]
    assert (period["intervals"], len(cells)) == (len(cells), period["intervals"])
    assert len(cells) >= 2
    assert period["score"] == pytest.approx(fmean(cells))
    assert (now["score"], now["intervals"]) == (None, 0)


def test_candidates_are_shown_with_state_test_and_pairs_and_one_is_rejected(world: World) -> None:
    waiting = in_state(world, "shadow") + in_state(world, "passed")
    with world.platform.transaction() as conn:
        state = gate_of(conn, waiting[0].run_id).state
    tests = {each["trigger"]: (each["trial"]["number"], each["trial"]["n"]) for each in state["candidates"] if each["trial"]}
    rows = {each["trigger"]: each for each in shown()["candidates"]}
    assert tests
    for event in waiting:
        row = rows[event.partition_key]
        assert (row["state"], (row["test"], row["pairs"])) == (event.state, tests[event.ordinal])
    chosen = waiting[-1]
    text = done("reject", chosen.model_hash[:12], "--reason", "trained on a bad day", "--as", "ann")
    assert "is rejected now" in text
    row = next(each for each in shown()["candidates"] if each["trigger"] == chosen.partition_key)
    assert (row["state"], row["actor"], row["reason"], row["test"]) == ("rejected", "ann", "trained on a bad day", None)
    assert "trained on a bad day" in done("history", "asked")


def test_of_two_people_at_once_the_second_is_told_and_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = in_state(world, "passed")[-1]
    before = events(world)

    def meanwhile(*arguments: Any, **options: Any) -> Any:
        with world.platform.transaction() as conn:
            row = gate_of(conn, passed.run_id)
            move_gate(conn, row, "run", batch=row.batch, state=row.state)
        return crowned(*arguments, **options)

    monkeypatch.setattr("modyn_dagster.pipeline.promotion.actions.crowned", meanwhile)
    text = refused("promote", passed.partition_key)
    assert "somebody else changed the promotions of live run 1 of asked" in text
    assert "look at `modyn-dagster model history asked` and try again" in text
    assert events(world) == before


def test_a_rollback_loads_the_earlier_model_first_and_the_champion_stays_where_it_does_not_load(world: World) -> None:
    [first], passed = in_state(world, "champion"), in_state(world, "passed")[-1]
    done("promote", passed.partition_key)
    place = Path(str(world.platform.model_store.root))
    place.rename(place.with_name("elsewhere"))
    try:
        text = refused("rollback", "asked")
    finally:
        place.with_name("elsewhere").rename(place)
    assert f"the model of trigger {first.ordinal} cannot be loaded, so the champion stays" in text
    assert world.reread(first.run_id).champion_model == passed.model_hash


def test_a_rollback_moves_the_aliases_at_once_also_after_a_promotion_while_mlflow_was_down(
    world: World, mlflow_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [first], passed = in_state(world, "champion"), in_state(world, "passed")[-1]
    monkeypatch.setenv("MODYN_MLFLOW_URI", "http://127.0.0.1:9")
    text = done("promote", passed.partition_key)
    assert "http://127.0.0.1:9" in text
    assert "; the change holds, and the next evaluation moves the aliases" in text
    assert world.reread(first.run_id).champion_model == passed.model_hash

    monkeypatch.setenv("MODYN_MLFLOW_URI", mlflow_uri)
    text = done("rollback", "asked")
    versions = numbers(mlflow_uri)
    old = versions[first.model_hash]
    assert f"MLflow: version {max(versions.values())} is current now; version {old} is champion and live now" in text
    assert int(open_client(mlflow_uri).get_model_version_by_alias("asked", "live").version) == old


@pytest.mark.soak("screens")
def test_an_alias_that_a_person_has_moved_in_mlflow_stays_and_the_commands_say_so(
    world: World, mlflow_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = open_client(mlflow_uri)
    [first], passed = in_state(world, "champion"), in_state(world, "passed")[-1]
    monkeypatch.setenv("MODYN_MLFLOW_URI", mlflow_uri)
    text = done("promote", passed.partition_key)
    versions = numbers(mlflow_uri)
    old, new = versions[first.model_hash], versions[passed.model_hash]
    assert f"version {new} is champion and live now" in text
    other = next(number for number in versions.values() if number not in (old, new))
    client.set_registered_model_alias("asked", "champion", str(other))
    text = done("rollback", "asked")
    assert f"MLflow: version {old} is live now; asked: alias champion was moved by hand to version {other}" in text
    assert int(client.get_model_version_by_alias("asked", "champion").version) == other
    assert world.reread(first.run_id).champion_model == first.model_hash
    client.delete_registered_model_alias("asked", "champion")
    assert f"version {new} is champion and live now" in done("promote", passed.partition_key)


def numbers(uri: str) -> dict[str, int]:
    """Numbers of the versions in MLflow by their models."""
    found = open_client(uri).search_model_versions("name = 'asked'")
    return {version.tags["modyn/model"]: int(version.version) for version in found}


def test_mistakes_are_told_in_one_sentence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    [first] = in_state(world, "champion")
    assert "there is none to go back to" in refused("rollback", "asked")
    assert "is the champion; roll back, or promote another one" in refused("reject", first.partition_key)
    assert "is a pipeline; say which of its models" in refused("promote", "asked")
    assert "no model with the id or partition key" in refused("promote", "ffffffffff")
    assert "000009-000001" in refused("promote", "000009-000001")
    assert "must be the name of a person" in refused("promote", first.partition_key, "--as", "gate")
    assert "had no champion at 1999-01-01" in refused("promote", "asked", "--at", "1999-01-01")
    assert "must be named in one way" in refused("promote", "asked", "--at", "1999-01-01", "--trigger", "1")
    assert "must be named in one way" in refused("rollback", "asked", "--to", "ab", "--trigger", "1")
    assert "no run of asked with id 7" in refused("history", "asked", "--run", "7")
    assert "plain has not run yet" in refused("history", "plain")
    assert "plain has no open live run" in refused("rollback", "plain")
    monkeypatch.setattr("getpass.getuser", nobody)
    assert "must name you" in refused("promote", first.partition_key)


def nobody() -> str:
    raise KeyError("no such account")


def test_a_model_of_a_replay_needs_the_run(world: World) -> None:
    with world.platform.transaction() as conn:
        conn.exec_driver_sql("update pipeline_run set mode = 'replay'")
    [first] = in_replay(world)
    assert "which is no open live run; name that run by its id: --run 1" in refused("promote", first.model_hash)
    assert "nothing to do" in done("promote", first.model_hash, "--run", "1")
    assert "What was live when: replay run 1 of asked" in done("history", "asked")


def in_replay(world: World) -> list[PromotionRow]:
    with world.platform.transaction() as conn:
        return [event for event in list_promotions(conn, 1) if event.state == "champion"]


def test_the_status_of_a_pipeline_shows_its_champion_and_candidates(world: World) -> None:
    result = CliRunner().invoke(main, ["pipeline", "status", "asked"])
    [first] = in_state(world, "champion")
    assert f"{first.partition_key}; " in result.stdout
    [row] = json.loads(CliRunner().invoke(main, ["pipeline", "status", "asked", "--json"]).stdout)
    assert row["promotion"]["champion"] == first.partition_key
    passed = in_state(world, "passed")[-1]
    assert row["promotion"]["candidates"][passed.partition_key] == "passed"


def test_the_report_of_the_dataset_has_the_table_of_pipelines_that_promote(world: World) -> None:
    done("promote", in_state(world, "passed")[-1].partition_key, "--reason", "a | b")
    with world.platform.transaction() as conn:
        [record] = read_report(conn, ["asked", "plain"], title="t").pipelines
        found = read_history(conn, world.run("asked", "live"))
    assert found is not None
    assert record.live == live_table(found)
    assert [row[7] for row in record.live.rows] == ["the first model", "a | b"]
    newest = live_table(found, most=1)
    assert newest.rows == record.live.rows[1:]
    assert "earlier: 1 left out" in newest.caption


def test_a_pipeline_without_promotion_says_so_and_its_status_names_no_champion(world: World) -> None:
    world.live_until_idle("plain")
    assert "promotes nothing: its spec has no `promotion`" in refused("history", "plain")
    assert "has no gate" in refused("rollback", "plain")
    plain = CliRunner().invoke(main, ["pipeline", "status", "plain"])
    assert "champion" not in plain.stdout
