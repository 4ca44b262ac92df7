"""Runs that reserve a part of this machine: they wait for each other, and say so, and for what is not there they fail."""

import threading
from pathlib import Path

import pytest

from modyn_dagster.distributed.machine import Machine
from modyn_dagster.distributed.protocols import Resources
from tests.dagster.face import Face, error_of
from tests.integration.harness.waiting import wait_for
from tests.projects.tiny import Content, amount, write_project


@pytest.fixture
def claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the claims of a machine with one GPU."""
    monkeypatch.setenv("MODYN_CLAIMS", str(tmp_path / "claims"))
    monkeypatch.setenv("MODYN_GPUS", "1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path / "claims"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    pipelines = [
        pipeline("on_gpu", train={"gpus": 1}),
        pipeline("too_large", train={"gpus": 2}),
    ]
    return write_project(tmp_path / "project", pipelines)


def pipeline(name: str, **resources: object) -> Content:
    content = amount(name, every=60)
    content["training"]["device"] = "auto"
    return content | {"resources": resources}


@pytest.mark.soak("screens")
def test_a_replay_waits_for_the_only_gpu_and_gives_it_back(face: Face, claims: Path, ingested: list[str]) -> None:
    before = Machine.here().claim(Resources(gpus=1), "somebody", pytest.fail)

    def let_it_go() -> None:
        wait_for("the replay to wait", lambda: len(list(claims.glob("*.claim"))) == 2)
        before.release()

    thread = threading.Thread(target=let_it_go)
    thread.start()
    result = face.materialize(("on_gpu", "replay"), batches=(ingested[0], ingested[-1]))
    thread.join()
    assert result.success, error_of(result)
    said = [entry.user_message for entry in face.instance.all_logs(result.run_id)]
    assert any("waits for 1 CPUs, 1 GPUs of this machine, which others have: somebody" in line for line in said)
    assert not list(claims.glob("*.claim"))


def test_what_the_machine_does_not_have_fails_the_run_in_words(face: Face, claims: Path, ingested: list[str]) -> None:
    result = face.materialize(("too_large", "replay"), batches=(ingested[0], ingested[-1]))
    assert not result.success
    assert "of too_large needs 1 CPUs, 2 GPUs: this machine" in error_of(result)
