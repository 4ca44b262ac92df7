"""``modyn-dagster pipeline trigger``, ``stop``, ``resume``, ``reset``, ``status`` and ``show`` on a live pipeline."""

import json
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner, Result

# Dagster has no public way to put a run into its queue without a webserver.
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin

from modyn_dagster.catalog.database.urls import child_environment
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.predictions import TakenOver, taken_over
from modyn_dagster.catalog.timings import bytes_by_trigger
from modyn_dagster.cli import main
from modyn_dagster.pipeline.decide.attempts import claim_context, give_up_attempt
from modyn_dagster.settings import Settings
from tests.pipeline.world import World, make_world
from tests.projects.tiny import amount, timed

INSTANCE = """
telemetry: {enabled: false}
run_coordinator: {module: dagster._core.run_coordinator, class: QueuedRunCoordinator}
"""
NEXT_STEP = "The sensor triggering__by_amount continues it, if it is on; see `modyn-dagster pipeline status by_amount`.\n"


@pytest.fixture
def world(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A live run that has trained once, at sample 60 of 80."""
    made = make_world(settings, tmp_path / "project", [amount(every=60, max_attempts=1), timed("unused")])
    dagster_home = tmp_path / "dagster"
    dagster_home.mkdir()
    (dagster_home / "dagster.yaml").write_text(INSTANCE)
    environment = child_environment(made.settings) | {"DAGSTER_HOME": str(dagster_home)}
    for name, value in (made.settings.environment() | environment).items():
        monkeypatch.setenv(name, value)
    made.deliver([0, 1])
    made.live_until_idle("by_amount")
    yield made
    made.close()


def run(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(main, ["pipeline", *arguments], input=answer, catch_exceptions=False)


def state(world: World) -> str:
    return world.run("by_amount", "live").state


def test_a_trigger_by_hand_says_what_it_did_and_what_comes_next(world: World) -> None:
    done = run("trigger", "by_amount", "--note", "ann: a campaign")
    assert done.stdout == (
        "trigger 000001-000001 at key 4294967335: manual: ann: a campaign\n"
        "The sensor triggering__by_amount requests its training, if it is on; see `modyn-dagster pipeline status by_amount`.\n"
    )
    again = run("trigger", "by_amount")
    assert again.exit_code == 1
    assert "error: live run 1 of by_amount has an unfinished trigger, 000001-000001 (pending: manual: ann" in again.stderr
    now = world.tick("by_amount").train
    assert now is not None
    world.train("by_amount", now)
    nothing = run("trigger", "by_amount")
    assert nothing.stderr == "error: live run 1 of by_amount has nothing new to train on since its last trigger\n"


def test_stop_and_resume_say_what_they_did_and_what_comes_next(world: World) -> None:
    stopped = run("stop", "by_amount")
    assert stopped.stdout == (
        "live run 1 of by_amount is stopped\n"
        "`modyn-dagster pipeline resume by_amount` resumes it, with all batches that have arrived until then.\n"
    )
    assert state(world) == "stopped"
    refused = run("trigger", "by_amount")
    assert "is stopped: stopped; `modyn-dagster pipeline resume by_amount` lets it go on" in refused.stderr
    assert run("resume", "by_amount").stdout == "live run 1 of by_amount: decides again\n" + NEXT_STEP
    assert state(world) == "active"
    assert run("resume", "by_amount").exit_code == 1


def test_stop_with_an_unfinished_trigger_finishes_it_or_gives_it_up(world: World) -> None:
    run("trigger", "by_amount")
    assert "stops as soon as trigger 000001-000001 (pending) is finished" in run("stop", "by_amount").stdout
    assert state(world) == "stopping"
    [*_, left] = world.triggers(1)
    claim_context(world.platform, left, "somewhere")
    given_up = run("stop", "by_amount", "--now").stdout
    assert "is stopped; once resumed it trains trigger 000001-000001, attempt 2" in given_up
    assert "Dagster run somewhere can no longer commit; terminate it in Dagster to free the machine." in given_up
    assert run("resume", "by_amount").stdout.startswith("live run 1 of by_amount: trigger 000001-000001 will be trained again\n")


def queued(instance: dg.DagsterInstance, tags: dict[str, str]) -> str:
    @dg.job
    def nothing() -> None: ...

    place = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("location"), "repository")
    status = dg.DagsterRunStatus.QUEUED
    return instance.create_run_for_job(
        nothing, tags=tags, status=status, remote_job_origin=place.get_job_origin("nothing")
    ).run_id


@pytest.mark.soak("screens")
@pytest.mark.parametrize("command", [("stop", "--now"), ("reset", "--now", "--yes")])
def test_what_is_given_up_at_once_is_cancelled_in_dagster(world: World, command: tuple[str, ...]) -> None:
    run("trigger", "by_amount")
    with dg.DagsterInstance.get() as instance:
        training = queued(instance, {"modyn/trigger": "000001-000001", "modyn/attempt": "1"})
        measuring = queued(instance, {"modyn/measurement": "by_amount"})
        others = [queued(instance, tags) for tags in ({"modyn/trigger": "000002-000001"}, {"modyn/measurement": "unused"})]
        done = run(command[0], "by_amount", *command[1:]).stdout
        assert f"Dagster run {training}, which trained 000001-000001, is cancelled\n" in done
        assert f"Dagster run {measuring}, which measured, is cancelled\n" in done
        statuses = [str(instance.get_run_by_id(each).status.value) for each in (training, measuring, *others)]  # type: ignore[union-attr]  # there is a run
    assert statuses == ["CANCELED", "CANCELED", "QUEUED", "QUEUED"]


def test_a_run_is_stopped_whether_or_not_dagster_answers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(world.folder / "missing"))
    run("trigger", "by_amount")
    claim_context(world.platform, world.triggers(1)[-1], "elsewhere")
    stopped = run("stop", "by_amount", "--now")
    assert "Dagster cannot be asked to cancel anything (ConfigError: " in stopped.stderr
    assert "Dagster run elsewhere can no longer commit; terminate it in Dagster" in stopped.stdout
    assert state(world) == "stopped"


@pytest.mark.soak("replays")
def test_resume_still_lets_a_failed_trigger_be_tried_again(world: World) -> None:
    run("trigger", "by_amount")
    [*_, left] = world.triggers(1)
    give_up_attempt(world.platform, world.run("by_amount", "live"), left, "boom")
    assert "is waiting: there is nothing to stop" in run("stop", "by_amount").stderr
    assert "trigger 000001-000001 will be trained again" in run("resume", "by_amount").stdout


def test_reset_asks_first_and_begins_anew(world: World) -> None:
    refused = run("reset", "by_amount", answer="n\n")
    assert refused.exit_code == 1
    assert refused.stdout.startswith(
        "live run 1 of by_amount (active, batch ordinal 1) ends, a new one begins before the first batch.\n"
        "Train everything from there again? [y/N]"
    )
    assert state(world) == "active"
    done = run("reset", "by_amount", "--from", "day_01", "--yes")
    assert done.stdout.splitlines()[-2:] == [
        "live run 1 of by_amount is ended; live run 2 of by_amount begins before day_01",
        NEXT_STEP.strip(),
    ]
    assert (world.run("by_amount", "live").id, world.run("by_amount", "live").last_ordinal) == (2, 0)
    assert run("reset", "by_amount", "--from", "day_77", "--yes").stderr == "error: no batch 'day_77'; known: day_00, day_01\n"


@pytest.mark.soak("replays")
def test_reset_does_not_lose_a_training_unless_told_to(world: World) -> None:
    run("trigger", "by_amount")
    assert "let it end, or give it up (--now)" in run("reset", "by_amount", "--yes").stderr
    assert "trigger 000001-000001 is abandoned" in run("reset", "by_amount", "--yes", "--now").stdout


@pytest.mark.parametrize("command", ["stop", "reset", "finish"])
def test_a_pipeline_that_never_ran_live_has_nothing_to_operate_on(world: World, command: str) -> None:
    result = run(command, "unused")
    expected = "error: unused has no live run yet; switch on the sensor triggering__unused, which begins one\n"
    assert (result.exit_code, result.stderr) == (1, expected)


def test_status_and_show_tell_the_newest_decisions(world: World) -> None:
    run("trigger", "by_amount", "--note", "ann")
    [row] = json.loads(run("status", "by_amount", "--json").stdout)
    newest = row["newest_decision"]
    assert (newest["fire"], newest["reason"], newest["score"], newest["threshold"]) == (True, "60 samples", 60.0, 60.0)
    assert (row["open_trigger"], row["open_trigger_state"]) == ("000001-000001", "pending")
    assert run("status").exit_code == 0
    shown = run("show", "by_amount").stdout
    for text in ("live run 1 of by_amount, active", "train", "60 samples", "000001-000000", "manual: ann", "2 of 2 triggers"):
        assert text in shown, shown
    content = json.loads(run("show", "by_amount", "--json", "--decisions", "1").stdout)
    assert [decision["point"] for decision in content["decisions"]] == [newest["point"]]
    made = [(each["reason"], each["manual"]) for each in content["made_triggers"]]
    assert made == [("60 samples", False), ("manual: ann", True)]
    trained, pending = (each["model"] for each in content["made_triggers"])
    assert pending is None
    with world.platform.transaction() as conn:
        assert [row.hash for row in list_models(conn, 1)] == [trained]
    assert trained[:12] in shown


def test_status_breaks_no_name_of_a_pipeline(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert "by_amount" in run("status").stdout


def test_show_names_the_runs_there_are(world: World) -> None:
    assert run("show", "by_amount", "--run", "9").stderr == "error: no run of by_amount with id 9; known: 1\n"
    assert "error: unused has not run yet" in run("show", "unused").stderr


@pytest.mark.soak("screens")
def test_tables_of_a_replay_beside_a_live_run_show_that_replay_and_fit_80_columns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    # The batches are there; Dagster hears of them.
    assert CliRunner().invoke(main, ["dataset", "import", "tiny"], catch_exceptions=False).exit_code == 0
    replayed = run("replay", "by_amount", "--name", "try")
    assert replayed.exit_code == 0, replayed.stderr
    lines = replayed.stdout.splitlines()
    assert any(line.startswith("by_amount") and "replay 2" in line for line in lines)
    assert "'try'" in replayed.stdout
    assert "live 1" not in replayed.stdout
    compared = run("compare")
    assert compared.stdout.splitlines()[0] == "tiny"
    assert "live 1" in compared.stdout
    [content] = json.loads(run("compare", "--json").stdout)
    assert content["dataset"] == "tiny"
    assert [each["mode"] for each in content["runs"]] == ["live"]
    for shown in (replayed, compared, run("status"), run("show", "by_amount"), run("show", "by_amount", "--run", "2")):
        assert max(map(len, shown.stdout.splitlines())) <= 80
    status = CliRunner().invoke(main, ["dataset", "status"], catch_exceptions=False)
    assert max(map(len, status.stdout.splitlines())) <= 80
    # It trains the same model, and takes the predictions of the live run over.
    assert "(+" in replayed.stdout
    with world.platform.transaction() as conn:
        made, taken = taken_over(conn, 1), taken_over(conn, 2)
        written = [{stage: n for (_, stage), n in bytes_by_trigger(conn, run_id).items()} for run_id in (1, 2)]
    assert made == TakenOver()
    assert (taken.n_samples, taken.n_bytes) == (80, written[0]["evaluate"])
    assert taken.seconds > 0
    assert "evaluate" not in written[1]
