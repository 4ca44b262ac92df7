"""Everything below the home is searched by whatever name it is reached, and what cannot be listed is named."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from modyn_dagster.catalog.removal.deletion_requests import DeletionRequestRow
from modyn_dagster.pipeline.operate.deletion.report.fingerprints import Fingerprints, fingerprints_path
from modyn_dagster.pipeline.operate.deletion.report.held_files import not_searched
from modyn_dagster.pipeline.operate.deletion.report.scan import Scan, scan
from modyn_dagster.settings import Settings
from tests.conftest import TEMPLATE, RunningServer
from tests.pipeline.deletion_report.reported import GONE, finish_deletion, row_of, without_rows
from tests.pipeline.world import World, make_world
from tests.projects.tiny import DATASET, amount

ROW = row_of(int(GONE[0]))


@pytest.fixture(scope="module")
def deleted(
    postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[World, DeletionRequestRow]]:
    """A world whose originals are corrected, so that nothing holds the samples."""
    folder = tmp_path_factory.mktemp("walked")
    settings = postgres_server.settings(folder, folder / "home", "twalk_")
    postgres_server.create_database("twalk_modyn", TEMPLATE)
    made = make_world(settings, folder / "project", [amount(every=40)])
    made.deliver(range(3))
    row = finish_deletion(made)
    without_rows(made.folder / "data" / "day_01.csv", [row_of(int(key)) for key in GONE])
    yield made, row
    made.close()
    postgres_server.drop_database("twalk_modyn")


def searched(world: World, row: DeletionRequestRow) -> Scan:
    fingerprints = Fingerprints.read(fingerprints_path(world.settings.home, row.id, row.document["salt"]))
    return scan(world.platform, world.platform.view(DATASET).row, fingerprints)


def findings(world: World, row: DeletionRequestRow) -> list[tuple[str, str, str]]:
    return [(finding.state, finding.kind, finding.path) for finding in searched(world, row).findings]


def test_a_folder_on_another_disk_is_searched_by_its_link(deleted: tuple[World, DeletionRequestRow], tmp_path: Path) -> None:
    world, row = deleted
    (tmp_path / "big" / "old").mkdir(parents=True)
    (tmp_path / "big" / "old" / "1.bin").write_bytes(bytes(9) + ROW)
    link = world.settings.home / "shards" / "moved"
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "big")
    # A link to a folder above it would never end.
    (tmp_path / "big" / "again").symlink_to(world.settings.home)
    try:
        assert findings(world, row) == [("found", "shards", "shards/moved/old/1.bin")]
    finally:
        link.unlink()


def test_a_file_on_another_disk_is_searched_by_its_link(deleted: tuple[World, DeletionRequestRow], tmp_path: Path) -> None:
    world, row = deleted
    (tmp_path / "ui.log").write_bytes(ROW)
    link = world.settings.home / "logs" / "ui.log"
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "ui.log")
    try:
        assert findings(world, row) == [("found", "logs", "logs/ui.log")]
    finally:
        link.unlink()


@pytest.mark.parametrize("target", ["away", "circle"])
def test_a_link_to_what_is_not_there_is_named(deleted: tuple[World, DeletionRequestRow], tmp_path: Path, target: str) -> None:
    world, row = deleted
    link = world.settings.home / "circle"
    link.symlink_to(link if target == "circle" else tmp_path / "not mounted")
    try:
        assert [path for path, _ in searched(world, row).unread] == ["circle"]
    finally:
        link.unlink()


def test_a_folder_that_may_not_be_listed_is_named(
    deleted: tuple[World, DeletionRequestRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, row = deleted
    closed = world.settings.home / "closed"
    closed.mkdir()
    listed = os.scandir

    def refused(path: Any) -> Any:
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    # The administrator, as whom tests may run, is refused nothing.
    monkeypatch.setattr(os, "scandir", refused)
    try:
        [(path, reason)] = searched(world, row).unread
    finally:
        closed.rmdir()
    assert (path, "Permission denied" in reason) == ("closed", True)


def test_a_file_is_not_passed_over_for_its_name(deleted: tuple[World, DeletionRequestRow]) -> None:
    world, row = deleted
    planted = [world.settings.home / "a.fingerprints", world.settings.home / "deletions" / "9-0123abcd.fingerprints"]
    for path in planted:
        path.write_bytes(ROW)
    try:
        assert sorted(path for _, _, path in findings(world, row)) == ["a.fingerprints", "deletions/9-0123abcd.fingerprints"]
    finally:
        for path in planted:
            path.unlink()


def test_an_original_with_a_second_name_below_the_home_is_one_of_ours(deleted: tuple[World, DeletionRequestRow]) -> None:
    world, row = deleted
    original = world.folder / "data" / "note.txt"
    original.write_bytes(ROW)
    second, link = world.settings.home / "note.txt", world.settings.home / "link.txt"
    second.hardlink_to(original)
    try:
        assert findings(world, row) == [("original", "originals", str(original)), ("found", "other", "note.txt")]
        second.unlink()
        link.symlink_to(original)
        assert findings(world, row) == [("original", "originals", str(original))]
    finally:
        for path in (original, second, link):
            path.unlink(missing_ok=True)


def test_a_model_store_below_the_originals_is_one_of_ours(settings: Settings, tmp_path: Path) -> None:
    store = tmp_path / "project" / "data" / "models"
    made = make_world(settings, tmp_path / "project", [amount(every=40) | {"model_store": {"root": str(store)}}])
    made.deliver(range(3))
    row = finish_deletion(made)
    store.mkdir(exist_ok=True)
    (store / "left.safetensors").write_bytes(ROW)
    found = [(finding.kind, finding.path) for finding in searched(made, row).found("found")]
    made.close()
    assert found == [("models", str(store / "left.safetensors"))]


def test_a_root_that_is_an_address_is_named(settings: Settings, tmp_path: Path) -> None:
    made = make_world(settings, tmp_path / "project", [amount(every=40)])
    assert not_searched(made.platform, DATASET) == []
    path = made.folder / "datasets" / f"{DATASET}.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"root": "memory://clicks"}))
    made.reload()
    addresses = not_searched(made.platform, DATASET)
    made.close()
    assert addresses == ["root of the dataset memory://clicks"]
