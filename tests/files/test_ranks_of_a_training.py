"""Ranks of a training whose files are in a store: they read through the copies of their node, to the bits of a local home."""

import secrets
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import s3fs

from modyn_dagster.catalog.access.roles import DATABASES
from modyn_dagster.catalog.database.urls import database_url
from modyn_dagster.files.mounting import Mount, files_at, home_of_files, opened_stores
from modyn_dagster.settings import Settings
from tests.conftest import TEMPLATE, RunningServer
from tests.model_store.s3 import S3, running
from tests.pipeline.world import World, make_world
from tests.projects.tiny import Content, amount


def pipeline() -> Content:
    content = amount(every=40)
    content["training"] |= {"epochs": 2, "batch_size": 10, "checkpoint": {"steps": 3}, "ranks": 2, "early_stopping": {}}
    return content


@pytest.fixture
def other_settings(postgres_server: RunningServer, tmp_path: Path) -> Iterator[Settings]:
    """A second catalog."""
    chosen = postgres_server.settings(tmp_path, tmp_path / "other", f"t{secrets.token_hex(4)}_")
    postgres_server.create_database(f"{chosen.database_prefix}modyn", TEMPLATE)
    yield chosen
    for name in DATABASES:
        postgres_server.drop_database(str(database_url(chosen, name).database))


def lived(settings: Settings, folder: Path) -> World:
    world = make_world(settings, folder, [pipeline()], split={"train": 0.6, "evaluate": 0.2, "calibrate": 0.2})
    world.deliver(range(6))
    world.live_until_idle("by_amount")
    return world


@pytest.mark.process
@pytest.mark.soak("distributed")
@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_ranks_read_through_the_copies_of_their_node(
    settings: Settings, other_settings: Settings, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running() as server:
        url = f"file://{tmp_path}/store" if kind == "folder" else in_s3(server, monkeypatch)
        local = lived(settings, tmp_path / "local")
        ann = lived(replace(other_settings, files=url), tmp_path / "ann")
        expected = local.outcome(local.run("by_amount", "live"))
        assert len(expected["models"]) > 1
        assert ann.outcome(ann.run("by_amount", "live")) == expected
        # A node that has no copy of anything: its ranks fetch what they read. Another hash would raise.
        bob = World(ann.folder, replace(ann.settings, home=tmp_path / "bob"))
        for trigger in bob.triggers(bob.run("by_amount", "live").id):
            shutil.rmtree(tmp_path / "bob" / "cache", ignore_errors=True)
            bob.train("by_amount", trigger)
            copies = [file.path for file in files_at(bob.platform.home).below(bob.platform.home / "batches")]
            assert any(path.is_file() for path in copies)
        for world in (local, ann, bob):
            world.close()


def in_s3(server: S3, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket, which this process and its ranks find by the environment."""
    values: dict[str, Any] = {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ACCESS_KEY_ID": server.key,
        "AWS_SECRET_ACCESS_KEY": server.secret,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    # Connections to another server that an earlier test has used.
    s3fs.S3FileSystem.clear_instance_cache()
    return server.fresh_url()


def test_a_store_that_was_opened_is_named_with_its_home_and_limit(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    before = opened_stores()
    assert home_of_files(tmp_path, None, 7) == tmp_path
    assert opened_stores() == before
    root = home_of_files(tmp_path / "node", url, 7)
    home_of_files(tmp_path / "node", url, 9)
    assert opened_stores() == [*before, Mount(tmp_path / "node", url, 9)]
    opened_stores()[-1].open()
    assert home_of_files(tmp_path / "node", url, 9) == root
