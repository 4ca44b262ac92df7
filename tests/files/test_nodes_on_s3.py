"""Nodes of separate processes and homes on moto's S3: one imports, another replays, a third runs live, and a server fails."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import s3fs
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from modyn_dagster.catalog.results.predictions import predictions_of_triggers
from modyn_dagster.files.mounting import files_at
from modyn_dagster.pipeline.replay.run import ReplayRequest
from modyn_dagster.pipeline.replay.walk import replay
from modyn_dagster.settings import Settings
from modyn_dagster.values.digest import bytes_digest
from tests.conftest import RunningServer
from tests.integration.harness.deployment import Deployment, deployed
from tests.model_store.s3 import S3, running
from tests.pipeline.integrity.homes import findings, full_world
from tests.pipeline.world import World
from tests.projects.tiny import amount, batch_text, drop, timed

pytestmark = pytest.mark.soak("distributed")


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    """A server with a bucket."""
    with running() as server:
        yield server


def allow(monkeypatch: pytest.MonkeyPatch, endpoint: str, key: str, secret: str) -> None:
    """Let this process and its children find the server as they would find a real one: by the environment."""
    values = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
    for name, value in (values | {"AWS_DEFAULT_REGION": "us-east-1"}).items():
        monkeypatch.setenv(name, value)
    # Connections to another server that an earlier test has used.
    s3fs.S3FileSystem.clear_instance_cache()


def read_by(world: World) -> dict[str, str]:
    """Digest of every file but models, as a node reads it."""
    home, found = world.platform.home, {}
    for file in files_at(home).below(home):
        if not file.path.is_relative_to(home / "models"):
            with files_at(home).using(file.path):
                found[str(file.path.relative_to(home))] = bytes_digest(file.path.read_bytes())
    return found


def predictions(world: World, mode: str, pipeline: str) -> list[tuple[int, str]]:
    """Checksums of the prediction files of a run, in order of their keys."""
    triggers = [trigger.id for trigger in world.triggers(world.run(pipeline, mode).id)]
    with world.platform.transaction() as conn:
        return sorted((row.first_key, row.checksum) for row in predictions_of_triggers(conn, triggers))


def test_what_one_process_imports_another_replays_and_a_third_runs_live_to_the_same_bits(
    s3: S3, postgres_server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, s3.endpoint, s3.key, s3.secret)
    url = s3.fresh_url()
    pipelines = [timed(every="2d"), amount(every=60)]
    with deployed(postgres_server, tmp_path, pipelines) as first:
        nodes = {
            name: Deployment(replace(first.settings, home=tmp_path / name, files=url, cache_size=10**9))
            for name in ("ann", "bob", "carl")
        }
        for day in range(6):
            drop(first.project, f"day_{day:02d}", batch_text(day))
        nodes["ann"].command("dataset", "import", "tiny")
        assert not (tmp_path / "ann" / "batches").exists()
        carl = World(first.project, nodes["carl"].settings)
        for name in ("by_time", "by_amount"):
            nodes["bob"].command("pipeline", "replay", name)
            carl.live_until_idle(name)
            replayed, live = (carl.outcome(carl.run(name, mode)) for mode in ("replay", "live"))
            # A live run that goes on has not scored the intervals that are still open.
            assert all(live[part] == replayed[part] for part in ("triggers", "training_sets", "models"))
            assert set(predictions(carl, "live", name)) <= set(predictions(carl, "replay", name))
        eve = World(first.project, replace(nodes["carl"].settings, home=tmp_path / "eve"))
        assert read_by(eve) == read_by(carl)
        kinds = {name.partition("/")[0] for name in read_by(eve)}
        assert kinds >= {"batches", "training_sets", "predictions"}
        assert findings(eve) == []
        shown = json.loads(nodes["bob"].command("disk", "usage", "--json").stdout)
        assert shown["problem"] is None
        assert shown["files"] == url
        for world in (carl, eve):
            world.close()
    everything = b"".join(s3.files().cat_file(name) for name in s3.files().find(url))
    assert s3.secret.encode() not in everything


class Failing:
    """moto's S3 behind a door that answers 503 to some requests, and then heals."""

    def __init__(self) -> None:
        self._backend = DomainDispatcherApplication(create_backend_app)
        self.n_failures, self.method = 0, ""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if self.n_failures and environ["REQUEST_METHOD"] == self.method:
            self.n_failures -= 1
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("503 Slow Down", [("Content-Type", "application/xml")])
            return [b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"]
        return self._backend(environ, start_response)

    @contextmanager
    def served(self) -> Iterator[str]:
        server = make_server("127.0.0.1", 0, self, threaded=True)
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_a_replay_waits_for_a_server_that_answers_503_and_ends_as_if_undisturbed(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    # The library asks again by itself a few times; what is left is ours.
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    failing = Failing()
    with failing.served() as endpoint:
        allow(monkeypatch, endpoint, "a", "a")
        bucket = f"files-{method.lower()}"
        s3fs.S3FileSystem().mkdir(bucket)
        url = f"s3://{bucket}/modyn"
        ann = full_world(replace(settings, home=tmp_path / "ann", files=url), tmp_path / "project")
        bob = World(ann.folder, replace(ann.settings, home=tmp_path / "bob"))
        lines: list[str] = []
        failing.n_failures, failing.method = 12, method
        list(replay(bob.platform, ReplayRequest("by_amount", bob.keys(), "run", name="disturbed"), waits=lines.append))
        assert failing.n_failures == 0
        assert lines
        assert "Please reduce your request rate" in lines[0]
        assert bob.outcome(bob.run_named("by_amount", "disturbed")) == ann.outcome(ann.run_named("by_amount", ""))
        run = bob.run_named("by_amount", "disturbed")
        assert {trigger.attempt for trigger in bob.triggers(run.id)} == {1}
        for world in (ann, bob):
            world.close()
