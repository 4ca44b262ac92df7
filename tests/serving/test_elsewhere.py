"""Models in an object store and MLflow over HTTP: a process with neither folder nor database serves the bits of evaluation."""

import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import fsspec.config
import pytest
from s3fs import S3FileSystem

from modyn_dagster.assets.promotion.by_hand import decide_by_hand
from modyn_dagster.errors import VersionUnavailable
from modyn_dagster.evaluation.promotion.state import Action
from modyn_dagster.pipeline.promotion.wishes import PlaceOfModel
from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.resources.mlflow import MlflowResource
from modyn_dagster.serving import load_live
from tests.conftest import RunningServer
from tests.model_store.s3 import S3, running
from tests.projects.tiny import amount
from tests.reporting.tracking_server import tracking_server
from tests.serving.served import Served, four_days

_PROGRAM: Final = """
import sys
import warnings
warnings.simplefilter("ignore")
import mlflow
from modyn_dagster.errors import VersionUnavailable
from modyn_dagster.serving import load
name, columns = sys.argv[1], {"x": [0.5, -2.0], "y": [-1.0, 3.0]}
try:
    print(load(name, "current").predict(columns, "outputs").values.tobytes().hex())
except VersionUnavailable as error:
    sys.exit(str(error))
model = mlflow.pyfunc.load_model(f"models:/{name}@current")
print(model.predict(columns, params={"output": "outputs"}).tobytes().hex())
"""
_LIVE: Final = """
import sys
from modyn_dagster.serving import load
print(load(sys.argv[1], "live").version.model)
"""
ROWS: Final = {"x": [0.5, -2.0], "y": [-1.0, 3.0]}


@contextmanager
def keys_of(bucket: S3) -> Iterator[None]:
    """Let fsspec find the address and keys of a server, as its own variables would."""
    found = {"endpoint_url": bucket.endpoint, "key": bucket.key, "secret": bucket.secret}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(fsspec.config.conf, "s3", found)
        # An open file system keeps the keys that it was opened with.
        S3FileSystem.clear_instance_cache()
        yield
    S3FileSystem.clear_instance_cache()


def environment_of(bucket: S3, mlflow: str, **others: str) -> dict[str, str]:
    """Environment of a process on another machine: addresses and keys, and nothing of ours but the code."""
    keys = {"FSSPEC_S3_ENDPOINT_URL": bucket.endpoint, "FSSPEC_S3_KEY": bucket.key, "FSSPEC_S3_SECRET": bucket.secret}
    return {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin", "MLFLOW_TRACKING_URI": mlflow} | keys | others


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    """A server with a bucket."""
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def elsewhere(
    s3: S3, postgres_server: RunningServer, mlflow_uri: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A pipeline whose models are in the bucket, trained and registered."""
    content = amount(f"p_{secrets.token_hex(4)}", every=60, model_store={"root": s3.fresh_url()})
    with keys_of(s3), four_days(postgres_server, mlflow_uri, tmp_path_factory.mktemp("elsewhere"), content) as served:
        served.live(name_of(served))
        yield served


def name_of(served: Served) -> str:
    [name] = served.world.platform.project.pipelines
    return name


def evaluated(served: Served) -> Any:
    """Raw outputs of the newest model for ROWS, loaded past MLflow."""
    samples = served.samples()
    newest = load_live(name_of(served), tracking_uri=served.mlflow)
    expected = served.evaluated(name_of(served), served.models(name_of(served))[-1], samples)
    assert newest.predict(samples.columns, "outputs").values.tobytes() == expected.tobytes()
    return newest.predict(ROWS, "outputs").values


def test_models_in_an_object_store_predict_what_evaluation_predicts(s3: S3, elsewhere: Served) -> None:
    with keys_of(s3):
        evaluated(elsewhere)
    assert not (elsewhere.world.settings.home / "models").exists()


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"secret": "wrong"}, id="wrong keys"),
        # The client asks five times before it gives up.
        pytest.param({"endpoint": "http://127.0.0.1:9"}, id="down", marks=pytest.mark.soak("production")),
    ],
)
def test_an_object_store_that_does_not_answer_is_one_sentence(s3: S3, elsewhere: Served, other: dict[str, str]) -> None:
    with (
        keys_of(s3.but(**other)),
        pytest.raises(VersionUnavailable, match=r"its model store s3://\S+ cannot be read: ") as raised,
    ):
        load_live(name_of(elsewhere), tracking_uri=elsewhere.mlflow)
    assert s3.secret not in str(raised.value)


@pytest.mark.soak("production")
def test_another_process_serves_from_the_object_store_and_mlflow_over_http(s3: S3, elsewhere: Served, tmp_path: Path) -> None:
    with keys_of(s3):
        expected = evaluated(elsewhere).tobytes().hex()

    def ask(environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", _PROGRAM, name_of(elsewhere)]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    with tracking_server(elsewhere.mlflow, tmp_path) as address:
        here = {"HOME": str(tmp_path), "MODYN_PROJECT": str(tmp_path / "nowhere")}
        done = ask(environment_of(s3, address, **here))
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[-2:] == [expected, expected]
        refused = ask(environment_of(s3.but(key="nobody"), address, **here))
    assert refused.returncode == 1
    assert "cannot be read" in refused.stderr.splitlines()[-1]


@pytest.mark.soak("production")
def test_promotion_and_rollback_move_the_aliases_over_http_and_another_process_serves_the_champion_from_the_object_store(
    s3: S3, postgres_server: RunningServer, mlflow_uri: str, tmp_path: Path
) -> None:
    rules = {"metric": "accuracy", "min_samples": 10, "confidence": 0.6, "approve": "manual"}
    content = amount(f"p_{secrets.token_hex(4)}", every=40, model_store={"root": s3.fresh_url()}, promotion=rules)
    with (
        keys_of(s3),
        four_days(postgres_server, mlflow_uri, tmp_path, content) as served,
        tracking_server(mlflow_uri, tmp_path) as address,
        pytest.MonkeyPatch.context() as patch,
    ):
        # The record of a version names the store as this process sees it.
        patch.setenv("MODYN_HOME", str(served.world.settings.home))
        name, platform = name_of(served), served.world.platform
        served.world.live_until_idle(name)
        run, models = served.world.run(name, "live"), served.models(name)
        here = {"HOME": str(tmp_path), "MODYN_PROJECT": str(tmp_path / "nowhere")}

        def decided(action: Action, trigger: int | None) -> str:
            place = PlaceOfModel(served.world.reread(run.id), trigger)
            return decide_by_hand(platform, MlflowResource(tracking_uri=address), action, place, "ann", "").sentences[-1]

        def served_elsewhere() -> str:
            command, environment = [sys.executable, "-c", _LIVE, name], environment_of(s3, address, **here)
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout.split()[-1]

        newest, first = models[-1], models[0]
        assert f"MLflow: version {len(models)} is current and champion and live now" in decided("promote", newest.ordinal)
        assert served_elsewhere() == newest.hash
        assert "MLflow: version 1 is champion and live now" in decided("rollback", None)
        assert served_elsewhere() == first.hash
        open_client(address).set_registered_model_alias(name, "champion", "2")
        assert "alias champion was moved by hand to version 2" in decided("promote", newest.ordinal)
        assert served_elsewhere() == newest.hash, "the alias live follows the catalog"
