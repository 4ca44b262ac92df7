"""``dataset delete --report`` and ``dataset verify-deletion``, run in this process."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from modyn_dagster.catalog.removal.deletion_requests import get_request
from modyn_dagster.cli import main
from modyn_dagster.pipeline.operate.deletion.document import DeletionDocument, Selection, key_digest
from modyn_dagster.pipeline.operate.deletion.execute import begin_request
from modyn_dagster.pipeline.operate.deletion.plan import Wish, plan_request
from modyn_dagster.pipeline.operate.deletion.report.fingerprints import fingerprints_path, named_fingerprints
from modyn_dagster.pipeline.operate.deletion.report.signing import key_path
from modyn_dagster.settings import Settings
from tests.conftest import TEMPLATE, RunningServer
from tests.pipeline.deletion_report.reported import GONE, finish_deletion, row_of, without_rows
from tests.pipeline.world import World, make_world
from tests.projects.tiny import DATASET, amount

ROWS = [row_of(int(key)) for key in GONE]


@pytest.fixture(scope="module")
def reported(postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Path]]:
    """A world with a deletion and its report, which tests leave as they are."""
    folder = tmp_path_factory.mktemp("reported")
    settings = postgres_server.settings(folder, folder / "home", "treport_")
    postgres_server.create_database("treport_modyn", TEMPLATE)
    made = make_world(settings, folder / "project", [amount(every=40)])
    made.deliver(range(3))
    row = finish_deletion(made)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in made.settings.environment().items():
            patch.setenv(name, value)
        written = run("delete", DATASET, "--report", row.id)
    assert written.exit_code == 0, written.output
    yield made, made.settings.home / "deletions" / str(row.id)
    made.close()
    postgres_server.drop_database("treport_modyn")


@pytest.fixture
def filed(reported: tuple[World, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[World, Path]:
    """The world of ``reported``, and a copy of its report."""
    world, folder = reported
    for name, value in world.settings.environment().items():
        monkeypatch.setenv(name, value)
    return world, Path(shutil.copytree(folder, tmp_path / "filed"))


@pytest.fixture
def world(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_world(settings, tmp_path / "project", [amount(every=40)])
    for name, value in made.settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MODYN_MLFLOW_URI", "")
    made.deliver(range(3))
    yield made
    made.close()


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["dataset", *map(str, arguments)])


def report(world: World, *arguments: object) -> tuple[int, Path]:
    """Delete samples, and write the report of it."""
    row = finish_deletion(world)
    written = run("delete", DATASET, "--report", row.id, *arguments)
    assert written.exit_code == 0, written.output
    return row.id, world.settings.home / "deletions" / str(row.id)


def fingerprints_of(world: World, folder: Path) -> Path:
    """The file of fingerprints that a report names."""
    content = json.loads((folder / "report.json").read_text())
    return named_fingerprints(world.settings.home, content["fingerprints"]["file"])


def test_a_report_names_what_was_done_and_nobody_and_is_what_was_signed(world: World) -> None:
    request, folder = report(world)
    assert sorted(path.name for path in folder.iterdir()) == ["public_key.pem", "report.dsse.json", "report.html", "report.json"]
    content = json.loads((folder / "report.json").read_text())
    assert (content["request"], content["dataset"], content["samples"], content["reason"]) == (request, DATASET, 2, "request 17")
    assert len(content["key_digests"]) == 2
    assert [finding["state"] for finding in content["scan"]["findings"]] == ["original"]
    for path in folder.iterdir():
        text = path.read_bytes()
        assert [row for row in ROWS if row in text] == []
        assert b"4711" not in text, "the text of the selection may name a person"
        assert str(GONE[0]).encode() not in text
    page = (folder / "report.html").read_text()
    assert "<script" not in page
    assert "Originals outside of our home" in page
    verified = run("verify-deletion", folder)
    assert verified.exit_code == 0, verified.output
    assert "the report is what was signed" in verified.stdout
    assert "original: originals" in verified.stderr


def test_the_digest_of_a_key_is_found_with_the_salt_of_the_catalog(world: World) -> None:
    row = finish_deletion(world)
    run("delete", DATASET, "--report", row.id)
    content = json.loads((world.settings.home / "deletions" / str(row.id) / "report.json").read_text())
    salt = row.document["salt"]
    assert content["key_digests"] == [key_digest(salt, DATASET, int(key)) for key in GONE]
    assert salt not in json.dumps(content)


def test_bytes_that_come_back_are_found_with_their_place(filed: tuple[World, Path]) -> None:
    world, folder = filed
    (world.settings.home / "logs").mkdir(exist_ok=True)
    planted = world.settings.home / "logs" / "old.log"
    planted.write_bytes(b"a row: " + ROWS[1])
    verified = run("verify-deletion", folder)
    assert verified.exit_code == 4
    assert "found: logs logs/old.log: 1 samples at 1 places, from byte 7" in verified.stderr
    found = json.loads(run("verify-deletion", folder, "--json").stdout)
    assert found["intact"] is True
    assert [each["path"] for each in found["scan"]["findings"] if each["state"] == "found"] == ["logs/old.log"]
    assert run("verify-deletion", folder, "--no-scan").exit_code == 0
    planted.unlink()


@pytest.mark.soak("screens")
def test_nothing_found_in_what_could_be_read_is_no_proof(world: World) -> None:
    row = finish_deletion(world)
    link = world.settings.home / "away"
    link.symlink_to(world.settings.home / "not mounted")
    written = run("delete", DATASET, "--report", row.id)
    assert (written.exit_code, "not read: away: " in written.stderr) == (1, True), written.output
    folder = world.settings.home / "deletions" / str(row.id)
    for arguments in ((), ("--json",)):
        verified = run("verify-deletion", folder, *arguments)
        assert (verified.exit_code, "cannot be told" in verified.stderr) == (1, True), verified.output
    (world.settings.home / "left.csv").write_bytes(ROWS[0])
    assert run("verify-deletion", folder).exit_code == 4
    (world.settings.home / "left.csv").unlink()
    link.unlink()
    assert run("verify-deletion", folder).exit_code == 0


def test_a_report_of_samples_that_are_still_here_says_so(world: World) -> None:
    row = finish_deletion(world)
    (world.settings.home / "left.csv").write_bytes(ROWS[0])
    written = run("delete", DATASET, "--report", row.id)
    assert written.exit_code == 4
    assert "found: other left.csv" in written.stderr
    assert "report: " in written.stdout


@pytest.mark.parametrize("name", ["report.json", "report.html", "report.dsse.json"])
def test_a_changed_file_is_named_before_anything_is_searched(filed: tuple[World, Path], name: str) -> None:
    _, folder = filed
    path = folder / name
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    changed = run("verify-deletion", folder)
    assert changed.exit_code == 3
    assert name in changed.stderr
    assert json.loads(run("verify-deletion", folder, "--json").stdout)["intact"] is False


@pytest.mark.soak("screens")
def test_a_report_made_with_another_home_needs_the_key_of_that_home(world: World, tmp_path: Path) -> None:
    _, folder = report(world, "--output", tmp_path / "filed")
    folder = tmp_path / "filed"
    trusted = tmp_path / "trusted.pem"
    shutil.copy(folder / "public_key.pem", trusted)
    key_path(world.settings.home).unlink()
    missing = run("verify-deletion", folder)
    assert (missing.exit_code, "--key" in missing.stderr) == (1, True)
    assert run("verify-deletion", folder, "--key", trusted).exit_code == 0
    run("delete", DATASET, "--report", 1, "--output", tmp_path / "second")
    other = run("verify-deletion", folder)
    assert (other.exit_code, "signed by the key" in other.stderr) == (3, True)


def test_a_home_that_was_moved_is_searched_at_its_new_place(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    _, folder = report(world)
    moved = world.settings.home.with_name("moved")
    world.close()
    world.settings.home.rename(moved)
    monkeypatch.setenv("MODYN_HOME", str(moved))
    (moved / "left.csv").write_bytes(ROWS[0])
    verified = run("verify-deletion", moved / folder.relative_to(world.settings.home))
    moved.rename(world.settings.home)
    assert verified.exit_code == 4, verified.output
    assert "found: other left.csv" in verified.stderr


def test_without_its_fingerprints_a_report_is_verified_but_nothing_can_be_searched(world: World) -> None:
    _, folder = report(world)
    fingerprints_of(world, folder).unlink()
    assert run("verify-deletion", folder, "--no-scan").exit_code == 0
    searched = run("verify-deletion", folder)
    assert (searched.exit_code, "fingerprints" in searched.stderr) == (1, True)


def test_fingerprints_of_another_deletion_are_refused(world: World) -> None:
    _, folder = report(world)
    row = finish_deletion(world)
    other = fingerprints_path(world.settings.home, row.id, row.document["salt"])
    shutil.copy(other, fingerprints_of(world, folder))
    searched = run("verify-deletion", folder)
    assert (searched.exit_code, "another deletion" in searched.stderr) == (1, True)


def test_a_deletion_from_plan_to_proof(world: World) -> None:
    """Ingest, train, plan, execute, report, verify; then correct the original, which was all that held the samples."""
    world.live_until_idle("by_amount")
    world.replay("by_amount")
    keys = ",".join(str(key) for key in GONE)
    saw = json.loads(run("delete", DATASET, "--keys", keys, "--plan", "--json").stdout)["models"]
    assert saw
    executed = run("delete", DATASET, "--keys", keys, "--execute", "--purge", "--yes", "--reason", "request 17")
    assert executed.exit_code == 0, executed.output
    assert run("delete", DATASET, "--report", 1).exit_code == 0
    folder = world.settings.home / "deletions" / "1"
    content = json.loads((folder / "report.json").read_text())
    assert [model["model"] for model in content["models"]] == [model["model"] for model in saw]
    assert {action["state"] for action in content["actions"]} == {"done"}
    changed = [file for file in content["files"] if file["kind"] == "training_set"]
    assert changed
    assert all(file["before"] != file["after"] for file in changed)
    assert {finding["state"] for finding in content["scan"]["findings"]} == {"original"}
    page = (folder / "report.html").read_text()
    for model in saw:
        assert model["model"] in page
    assert run("verify-deletion", folder).exit_code == 0
    without_rows(world.folder / "data" / "day_01.csv", ROWS)
    verified = run("verify-deletion", folder)
    assert (verified.exit_code, verified.stderr) == (0, "")


@pytest.mark.soak("screens")
def test_the_catalog_forgets_a_condition_that_names_a_person(world: World) -> None:
    condition = "time >= 2024-01-02T01:00:00Z and time <= 2024-01-02T01:00:00Z"
    executed = run("delete", DATASET, "--where", condition, "--execute", "--purge", "--yes", "--json")
    assert executed.exit_code == 0, executed.output
    shown = json.loads(executed.stdout)
    assert ("2024-01-02T01" in json.dumps(shown["selection"]), "salt" in shown, "keys" in shown) == (False, False, False)
    with world.platform.transaction() as conn:
        document = DeletionDocument.model_validate(get_request(conn, 1).document)
    assert "2024" not in document.selection.text
    assert document.selection.digest(document.salt) == Selection(by="where", text=condition).digest(document.salt)
    assert run("delete", DATASET, "--report", 1).exit_code == 0
    content = json.loads((world.settings.home / "deletions" / "1" / "report.json").read_text())
    assert content["selection"] == {"by": "where", "digest": document.selection.digest(document.salt)}


def test_a_report_is_written_of_a_finished_request_alone(world: World) -> None:
    view = world.platform.view(DATASET)
    keys = np.array(GONE[:1])
    wish = Wish(Selection(by="keys", text=str(keys[0])), "a person", None, False, "kept", {})
    row = begin_request(world.platform, view.row, keys, plan_request(world.platform, view.row, keys, wish))
    refused = run("delete", DATASET, "--report", row.id)
    assert (refused.exit_code, f"--request {row.id} --execute" in refused.stderr) == (1, True)


@pytest.mark.parametrize("others", [("--keys", "1"), ("--execute",), ("--plan",)])
def test_a_report_is_asked_for_alone(others: tuple[str, ...]) -> None:
    assert run("delete", DATASET, "--report", 1, *others).exit_code == 2
    assert run("delete", DATASET, "--output", "folder", *others).exit_code == 2


@pytest.mark.usefixtures("filed")
def test_a_request_that_is_missing_is_refused() -> None:
    refused = run("delete", DATASET, "--report", 77)
    assert (refused.exit_code, "77" in refused.stderr) == (1, True)
    assert run("delete", DATASET, "--report", "x").exit_code == 2


@pytest.mark.soak("screens")
def test_a_report_written_again_replaces_the_first(world: World) -> None:
    request, folder = report(world)
    first = (folder / "report.json").read_bytes()
    assert run("delete", DATASET, "--report", request).exit_code == 0
    assert (folder / "report.json").read_bytes() != first
    assert run("verify-deletion", folder).exit_code == 0


@pytest.mark.parametrize("content", ["", "{}", "not json"])
@pytest.mark.usefixtures("filed")
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "report.dsse.json").write_text(content)
    refused = run("verify-deletion", tmp_path / "elsewhere")
    assert (refused.exit_code, "no envelope of a report" in refused.stderr) == (3, True)
