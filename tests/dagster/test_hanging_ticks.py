"""Policies of a user that hang in a sensor's tick: the tick says where, and costs no other sensor its turn."""

from collections.abc import Iterator, Mapping
from threading import Event
from threading import enumerate as threads
from typing import Any

import pytest

from modyn_dagster.errors import TickHangs
from modyn_dagster.sensors.ticks import tick_seconds
from modyn_dagster.triggering import Decision, Stream, TriggeringPolicy
from tests.dagster.face import Face
from tests.integration.harness.waiting import wait_for
from tests.projects.tiny import triggered, write_pipeline

LIMIT = "DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS"
ENTERED, LET_GO = Event(), Event()


class Hanging(TriggeringPolicy):
    """Never decides before it is let go."""

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        wait_to_be_let_go()
        return None

    def decide(self, point: int, measurement: object = None) -> Decision:
        raise AssertionError("no point was named")

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


def wait_to_be_let_go() -> None:
    ENTERED.set()
    LET_GO.wait(600)


@pytest.fixture(autouse=True)
def let_go() -> Iterator[None]:
    ENTERED.clear()
    LET_GO.clear()
    yield
    LET_GO.set()


def hanging_ticks() -> int:
    return sum(thread.name == "triggering__hangs" for thread in threads())


@pytest.mark.soak("screens")
def test_a_policy_that_hangs_fails_its_own_ticks_in_one_thread_and_holds_up_nobody(
    face: Face, ingested: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pipeline(face.settings.project, triggered("hangs", {"kind": "custom", "factory": f"{__name__}:Hanging"}))
    face.platform.__dict__["project"] = type(face.platform).open(face.settings).project
    face = Face(face.settings, face.instance)
    face.tick("triggering__by_amount")
    monkeypatch.setenv(LIMIT, "1")
    with pytest.raises(TickHangs):
        face.tick("triggering__hangs")
    assert ENTERED.wait(60)
    for _ in range(3):
        with pytest.raises(TickHangs, match=r"triggering__hangs: .* in wait_to_be_let_go \(.*test_hanging_ticks.py:\d+\)"):
            face.tick("triggering__hangs")
    assert hanging_ticks() == 1
    monkeypatch.delenv(LIMIT)
    assert face.tick("triggering__by_amount").requests
    LET_GO.set()
    wait_for("the end of the tick", lambda: hanging_ticks() == 0)
    assert "decided" in str(face.tick("triggering__hangs").skipped)


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [({}, 45), ({"DAGSTER_GRPC_TIMEOUT_SECONDS": "120"}, 90), ({"DAGSTER_GRPC_TIMEOUT_SECONDS": "120", LIMIT: "200"}, 150)],
)
def test_a_tick_gives_up_before_the_daemon_does(
    variables: dict[str, str], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (LIMIT, "DAGSTER_GRPC_TIMEOUT_SECONDS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert tick_seconds() == seconds
