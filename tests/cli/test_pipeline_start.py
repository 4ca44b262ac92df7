"""``modyn-dagster pipeline start NAME --from-replay RUN``: its lines, its exit codes and its refusals."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modyn_dagster.catalog.database.urls import child_environment
from modyn_dagster.cli import main
from modyn_dagster.settings import Settings
from tests.pipeline.world import World, make_world
from tests.projects.tiny import amount

NEXT_STEP = "The sensor triggering__by_amount continues it, if it is on; see `modyn-dagster pipeline status by_amount`.\n"


@pytest.fixture
def world(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A finished replay of two batches."""
    made = make_world(settings, tmp_path / "project", [amount(every=60)])
    for name, value in made.settings.environment().items():
        monkeypatch.setenv(name, value)
    made.deliver([0, 1])
    made.replay("by_amount")
    yield made
    made.close()


def start(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["pipeline", "start", "by_amount", *arguments], catch_exceptions=False)


@pytest.mark.soak("screens")
def test_it_says_what_the_live_run_begins_with_and_what_comes_next(world: World) -> None:
    begun = "live run 2 of by_amount begins after batch ordinal 1, with 1 model and the state of replay run 1 of by_amount"
    assert start("--from-replay", "1").stdout == f"{begun} (seed 7, threads 1)\n{NEXT_STEP}"
    again = start("--from-replay", "1")
    assert again.exit_code == 0
    said = "live run 2 of by_amount (active, batch ordinal 1) was started from replay run 1 of by_amount already\n"
    assert again.stdout == said + NEXT_STEP


def test_what_is_refused_ends_with_one_sentence_and_exit_code_1(world: World) -> None:
    start("--from-replay", "1")
    refused = start("--from-replay", "2")
    assert refused.exit_code == 1
    said = (
        "error: live run 2 of by_amount is no replay; `modyn-dagster pipeline status by_amount` names the replays of by_amount\n"
    )
    assert refused.stderr == said
    assert start().exit_code == 2


@pytest.mark.soak("screens")
def test_the_matrix_of_what_was_taken_over_is_evaluated_before_dagster_has_shown_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    start("--from-replay", "1")
    (world.folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    for name, value in (child_environment(world.settings) | {"DAGSTER_HOME": str(world.folder)}).items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(main, ["pipeline", "matrix", "by_amount"], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    assert "live run 2 of by_amount: 1 models are evaluated on every interval" in done.stdout
