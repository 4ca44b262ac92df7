"""``modyn-dagster dataset delete``, run in this process on a project with a trained pipeline."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.triggers import get_trigger, raise_attempt
from modyn_dagster.cli import main
from modyn_dagster.errors import DeletedKey
from modyn_dagster.pipeline.decide.attempts import claim_context
from modyn_dagster.settings import Settings
from tests.pipeline.world import World, make_world
from tests.projects.tiny import DATASET, amount

DAY = 1 << 32


@pytest.fixture
def world(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_world(settings, tmp_path / "project", [amount(every=40)])
    for name, value in made.settings.environment().items():
        monkeypatch.setenv(name, value)
    made.deliver(range(3))
    made.live_until_idle("by_amount")
    yield made
    made.close()


def run(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(main, ["dataset", "delete", DATASET, *arguments], input=answer, catch_exceptions=False)


def n_deleted(world: World) -> list[int]:
    return [batch.n_deleted for batch in world.platform.view(DATASET).batches]


def test_what_is_deleted_and_who_has_used_it_is_shown_before_it_is_done(world: World) -> None:
    with world.platform.transaction() as conn:
        [_, model, _] = list_models(conn, world.run("by_amount", "live").id)
    shown = (
        "tiny: 3 samples in 1 batches\n"
        "  batch day_01: 3 of 40 samples\n"
        "used by 1 training sets:\n"
        f"  by_amount (live) trigger 000001-000001: 3 of the keys; model {model.hash}\n"
    )
    keys = f"{DAY},{DAY + 4}-{DAY + 5}"
    assert run("--keys", keys, "--dry-run").stdout == shown
    refused = run("--keys", keys, answer="n\n")
    assert (refused.exit_code, refused.stdout.startswith(f"{shown}Delete them for good? [y/N]")) == (1, True)
    assert n_deleted(world) == [0, 0, 0]
    done = run("--keys", keys, "--reason", "a wish", answer="y\n")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "tiny: 3 samples deleted, 0 were deleted before")
    assert n_deleted(world) == [0, 3, 0]
    again = run("--keys", keys, "--yes").stdout
    assert "batch day_01: 3 of 40 samples, 3 of them deleted before" in again
    assert again.splitlines()[-1] == "tiny: 0 samples deleted, 3 were deleted before"
    with pytest.raises(DeletedKey):
        world.platform.view(DATASET).reader.read(np.array([DAY], dtype=np.uint64))


@pytest.mark.soak("screens")
def test_keys_come_from_a_file_a_source_file_or_a_condition(world: World, tmp_path: Path) -> None:
    (tmp_path / "keys.csv").write_text(f"who,key\na,3\nb,{DAY + 1}\n")
    assert run("--file", str(tmp_path / "keys.csv"), "--yes").exit_code == 0
    assert n_deleted(world) == [1, 1, 0]
    assert "40 samples in 1 batches" in run("--source-file", "day_02.csv", "--yes").stdout
    assert n_deleted(world) == [1, 1, 40]
    condition = run("--where", "label = 1 and time < 2024-01-02", "--yes")
    ones = world.platform.view(DATASET).batches[0].label_counts["1"]  # type: ignore[index]  # there are counts
    assert f"batch day_00: {ones} of 40 samples" in condition.stdout
    nothing = run("--where", "time < 1999-01-01", "--yes")
    assert (nothing.exit_code, nothing.stdout) == (0, "tiny: 0 samples in 0 batches\nused by 0 training sets\n")


def test_purging_tells_where_the_bytes_still_are(world: World) -> None:
    done = run("--keys", "0-2", "--purge", "--yes").stdout.splitlines()
    assert done[-3:] == [
        "tiny: 3 samples purged",
        "read in place and not touched, these files still hold them:",
        "  day_00.csv (3 samples)",
    ]
    assert "tiny: 0 samples purged" in run("--keys", "0-2", "--purge", "--yes").stdout


def test_purging_tells_of_files_that_a_training_keeps_and_again_removes_them(world: World) -> None:
    world.deliver([3])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    claim_context(world.platform, trigger, "one")
    done = run("--keys", "0-2", "--purge", "--yes").stdout.splitlines()
    index = world.platform.home / "batches" / DATASET / "0.arrow"
    assert done[-2:] == [
        "a training may still read these replaced files, which hold them; run the command again once none is running:",
        f"  {index}",
    ]
    assert index.exists()
    with world.platform.transaction() as conn:
        raise_attempt(conn, get_trigger(conn, trigger.id), "its process vanished")
    assert "replaced files" not in run("--keys", "0-2", "--purge", "--yes").stdout
    assert not index.exists()


def test_status_counts_what_is_deleted(world: World) -> None:
    run("--keys", "0-2", "--yes")
    status = CliRunner().invoke(main, ["dataset", "status", DATASET, "--json"], catch_exceptions=False)
    assert [row["deleted_samples"] for row in json.loads(status.stdout)] == [3, 0, 0]
    table = CliRunner().invoke(main, ["dataset", "status", DATASET], catch_exceptions=False).stdout
    assert "120 samples, 3 of them deleted; 3 ingested" in table


WRONG: dict[tuple[str, ...], tuple[int, str]] = {
    (): (2, "Give one of --keys, --ids, --file, --source-file and --where."),
    ("--keys", "1", "--where", "label = 1"): (2, "Give one of --keys"),
    ("--keys", "40"): (1, "error: tiny: no sample with key 40 (batch 0, position 40)"),
    ("--keys", "a"): (1, "error: dataset delete: --keys: must be keys and ranges of keys"),
    ("--file", "nowhere.txt"): (1, "error: nowhere.txt: cannot be read"),
    ("--source-file", "day_77.csv"): (1, "error: day_77.csv: no batch of dataset tiny has ingested this file"),
    ("--where", "label = spam"): (1, "error: dataset delete: --where, position 9: must be a number (found 'spam')"),
}


def test_what_is_wrong_is_told_in_one_sentence_and_nothing_is_done(world: World) -> None:
    for arguments, (code, message) in WRONG.items():
        result = run(*arguments, "--yes")
        assert (result.exit_code, message in result.stderr) == (code, True), (arguments, result.stderr)
    unknown = CliRunner().invoke(main, ["dataset", "delete", "x", "--keys", "1"], catch_exceptions=False)
    assert (unknown.exit_code, unknown.stderr) == (1, "error: no dataset 'x'; known: tiny\n")
    assert n_deleted(world) == [0, 0, 0]
