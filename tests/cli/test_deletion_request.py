"""``dataset delete --plan`` and ``--execute``: the table, the document, and what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.cli import main
from modyn_dagster.settings import Settings
from tests.pipeline.deleting import keys_of
from tests.pipeline.world import World, make_world
from tests.projects.tiny import DATASET, amount


@pytest.fixture
def world(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    chained = amount(every=40)
    chained["training"] |= {"use_previous_model": True}
    made = make_world(settings, tmp_path / "project", [chained])
    for name, value in made.settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MODYN_MLFLOW_URI", "")
    made.deliver(range(3))
    made.live_until_idle("by_amount")
    yield made
    made.close()


def run(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(main, ["dataset", "delete", *arguments], input=answer, catch_exceptions=False)


def models(world: World) -> list[str]:
    with world.platform.transaction() as conn:
        return [row.hash for row in list_models(conn, world.run("by_amount", "live").id)]


@pytest.mark.soak("screens")
def test_a_plan_changes_nothing_and_its_execution_ends_with_the_document(world: World) -> None:
    run_row = world.run("by_amount", "live")
    key = str(keys_of(world, world.triggers(run_row.id)[1])[0])
    before = models(world)
    planned = run(DATASET, "--keys", key, "--plan")
    assert (planned.exit_code, "by_amount run 1: retrain (by the ledger)" in planned.stdout) == (0, True)
    document = json.loads(run(DATASET, "--keys", key, "--plan", "--json").stdout)
    assert document["batches"] == [{"ordinal": 1, "batch": "day_01", "n_samples": 1}]
    assert {"salt", "keys"}.isdisjoint(document)
    assert [(model["model"], model["n_samples"], model["because"]) for model in document["models"]] == [
        (before[1], 1, ["training_set"]),
        (before[2], 0, ["previous_model"]),
    ]
    assert [cost["way"] for cost in document["actions"][0]["costs"]] == ["retrain", "roll_back", "retire"]
    assert run(DATASET, "--keys", key, "--execute", answer="n\n").exit_code == 1
    asked = run(DATASET, "--keys", key, "--execute", "--json", answer="n\n")
    assert (asked.exit_code, asked.stdout, before[1] in asked.stderr) == (1, "", True)
    assert models(world) == before
    done = run(DATASET, "--keys", key, "--execute", "--reason", "a wish", "--yes")
    assert (done.exit_code, "deletion request 1: 2 models made again, 0 withdrawn" in done.stdout) == (0, True), done.output
    after = models(world)
    assert (after[0], set(after) & set(before[1:])) == (before[0], set())
    again = run(DATASET, "--request", "1", "--execute", "--json")
    found = json.loads(again.stdout)
    assert (found["request"], found["reason"], found["selection"]) == (1, "a wish", {"by": "keys", "text": key})
    assert [model["replaced_by"] for model in found["models"]] == after[1:]


@pytest.mark.soak("screens")
def test_runs_are_decided_anew_by_the_command_and_the_status_tells_their_holes(world: World) -> None:
    planned = run(DATASET, "--keys", "31-39", "--decisions", "as_if_deleted", "--plan")
    assert planned.exit_code == 0
    assert "by_amount run 1: decide anew (by the ledger); decide anew" in planned.stdout
    said = " ".join(planned.stdout.split())
    assert "0 decisions were taken after the first of the samples arrived, and stay; 1 runs are decided anew" in said
    done = run(DATASET, "--keys", "31-39", "--decisions", "as_if_deleted", "--execute", "--yes")
    assert "live run 1 of by_amount: begun anew as run 2; its sensor decides and trains from here on" in done.stdout
    world.live_until_idle("by_amount")
    shown = CliRunner().invoke(main, ["pipeline", "status", "by_amount", "--json"], catch_exceptions=False)
    assert [(row["state"], row["holes"]) for row in json.loads(shown.stdout)] == [("ended", 0), ("active", 9)]
    assert "active, 9 holes" in CliRunner().invoke(main, ["pipeline", "status"], catch_exceptions=False).stdout
    reported = run(DATASET, "--report", "1")
    assert reported.exit_code == 0, reported.output
    assert "decide anew as run 2" in (world.settings.home / "deletions" / "1" / "report.html").read_text()


WRONG = {
    ("--keys", "1", "--plan", "--way", "by_amount=burn"): (1, "--way: must be PIPELINE=retrain|roll_back|retire"),
    ("--keys", "1", "--plan", "--way", "other=retire"): (1, "has no model that saw the samples; these have: by_amount"),
    ("--keys", "1", "--plan", "--decisions", "as_if_deleted", "--way", "by_amount=roll_back"): (
        1,
        "only decide_anew, retire go with the mode of its decisions",
    ),
    ("--keys", "1", "--plan", "--way", "by_amount=decide_anew"): (1, "only retrain, roll_back, retire go with the mode"),
    ("--keys", "1", "--decisions", "as_if_deleted"): (2, "belong to --plan and --execute"),
    ("--keys", "1", "--plan", "--decisions", "as_if_deleted", "--way", "other=retire"): (
        1,
        "no run of it has reached the samples",
    ),
    ("--keys", "1", "--way", "by_amount=retire"): (2, "belong to --plan and --execute"),
    ("--request", "7", "--execute"): (1, "no deletion request 7"),
    ("--keys", "1", "--execute", "--dry-run"): (2, "--plan shows what it would do"),
    ("--request", "1"): (2, "give it with --execute alone"),
    ("--request", "1", "--execute", "--purge"): (2, "--purge and --reason stand in the stored request"),
    ("--request", "1", "--execute", "--way", "by_amount=burn"): (1, "--way: must be PIPELINE=retrain|roll_back|retire"),
    ("--keys", "999", "--plan"): (1, "no sample with key 999"),
}


def test_what_is_wrong_is_told_in_one_sentence_and_nothing_is_done(world: World) -> None:
    before = models(world)
    for arguments, (code, message) in WRONG.items():
        result = run(DATASET, *arguments)
        assert (result.exit_code, message in " ".join(result.stderr.split())) == (code, True), (arguments, result.stderr)
    assert models(world) == before
    assert [batch.n_deleted for batch in world.platform.view(DATASET).batches] == [0, 0, 0]
