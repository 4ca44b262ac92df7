"""A MLflow that hangs or is away costs a run one wait at most, and is told afterwards."""

import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from modyn_dagster.reporting.mlflow.client import open_client
from tests.dagster.face import Face, deliver, error_of, ingest_day
from tests.dagster.mlflow_content import content, results, shown_in_full
from tests.projects.tiny import amount, batch_text, write_project

pytestmark = pytest.mark.soak("hangs")

DAYS = ("day_00", "day_02")
Comeback = Callable[[], None]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A MLflow for the tests of this file: it takes seconds to make its tables."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"
    open_client(uri)
    return uri


@pytest.fixture
def pipeline() -> str:
    """Name of the only pipeline, which no other test has told this MLflow of; it fires twice."""
    return f"away_{secrets.token_hex(4)}"


@pytest.fixture
def project(tmp_path: Path, pipeline: str) -> Path:
    return write_project(tmp_path / "project", [amount(pipeline, every=60)])


@pytest.fixture
def mlflow_returns(database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Comeback]:
    """MLflow is a server that accepts connections and never answers, until this is called."""
    with ExitStack() as ended:
        listener = ended.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        monkeypatch.setenv("MODYN_MLFLOW_URI", f"http://127.0.0.1:{listener.getsockname()[1]}")

        def come_back() -> None:
            # Its end resets the connections, and so ends whatever still waits for an answer.
            ended.close()
            monkeypatch.setenv("MODYN_MLFLOW_URI", database)

        yield come_back


@pytest.fixture
def impatient(face: Face) -> Iterator[Face]:
    """The same project and catalog, but that no run waits for MLflow for more than a moment."""
    impatient = Face(replace(face.settings, mlflow_timeout=0.5), face.instance)
    yield impatient
    impatient.platform.close()


def replay(face: Face, pipeline: str, days: tuple[str, str] = DAYS, name: str = "") -> None:
    result = face.materialize((pipeline, "replay"), batches=days, config={"name": name}, level="WARNING")
    assert result.success, error_of(result)


def n_warnings(capfd: pytest.CaptureFixture[str]) -> int:
    return sum("no answer within 0.5 s (MODYN_MLFLOW_TIMEOUT)" in line for line in capfd.readouterr().err.splitlines())


def test_a_replay_during_which_mlflow_is_away_is_shown_in_full_by_its_next_launch(
    face: Face, ingested: list[str], pipeline: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODYN_MLFLOW_URI", database)
    replay(face, pipeline, name="undisturbed")
    monkeypatch.setenv("MODYN_MLFLOW_URI", "http://127.0.0.1:1")
    replay(face, pipeline, name="away")
    monkeypatch.setenv("MODYN_MLFLOW_URI", database)
    replay(face, pipeline, name="away")
    shown = results(face, database, pipeline, "away")
    assert shown.keys() == {"", "000000", "000001", "models"}
    assert shown == results(face, database, pipeline, "undisturbed")


def test_a_replay_during_which_mlflow_hangs_is_shown_in_full_by_its_next_launch(
    face: Face,
    impatient: Face,
    ingested: list[str],
    pipeline: str,
    mlflow_returns: Comeback,
    database: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    replay(impatient, pipeline)
    assert n_warnings(capfd) == 1
    mlflow_returns()
    replay(face, pipeline)
    assert shown_in_full(face, database, pipeline, 2)


def test_trainings_during_which_mlflow_hangs_are_shown_in_full_by_the_next_evaluation(
    face: Face,
    impatient: Face,
    ingested: list[str],
    pipeline: str,
    mlflow_returns: Comeback,
    database: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    [request] = impatient.tick(f"triggering__{pipeline}").requests
    result = impatient.launch(request)
    assert result.success, error_of(result)
    triggers = [str(key) for key in impatient.materializations(pipeline, "model")]
    assert len(triggers) == 2, "the run takes the backlog"
    assert n_warnings(capfd) == 1, "one wait for the whole run"
    mlflow_returns()
    assert face.materialize((pipeline, "evaluation"), partition=triggers[1]).success
    assert shown_in_full(face, database, pipeline, 2)


def test_an_evaluation_during_which_mlflow_is_away_is_shown_by_that_of_another_model(
    face: Face, ingested: list[str], pipeline: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODYN_MLFLOW_URI", database)
    [request] = face.tick(f"triggering__{pipeline}").requests
    assert face.launch(request).success
    first, second = (str(key) for key in face.materializations(pipeline, "model"))
    deliver(face.settings.project, "day_03", batch_text(3))
    ingest_day(face, "day_03")
    monkeypatch.setenv("MODYN_MLFLOW_URI", "http://127.0.0.1:1")
    assert face.materialize((pipeline, "evaluation"), partition=first).success
    monkeypatch.setenv("MODYN_MLFLOW_URI", database)
    assert face.materialize((pipeline, "evaluation"), partition=second).success
    assert shown_in_full(face, database, pipeline, 2)


def test_a_mlflow_that_was_away_in_the_middle_has_nothing_old_afterwards(
    face: Face, ingested: list[str], pipeline: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODYN_MLFLOW_URI", database)
    replay(face, pipeline, ("day_00", "day_01"))
    shown = content(face, database, pipeline)
    [known] = [run for run, (_, _, _, tags, _) in shown.items() if "mlflow.parentRunId" in tags]
    monkeypatch.setenv("MODYN_MLFLOW_URI", "http://127.0.0.1:1")
    # The evaluation of the first model goes on with the new batch.
    replay(face, pipeline)
    monkeypatch.setenv("MODYN_MLFLOW_URI", database)
    replay(face, pipeline)
    assert known in content(face, database, pipeline), "the same run in MLflow"
    assert shown_in_full(face, database, pipeline, 2)
