"""A replay names what MLflow is to show, and goes on."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest

from modyn_dagster.assets.tracking.behind import TrackingBehind
from modyn_dagster.errors import TrackingError
from modyn_dagster.reporting.mlflow.process import Shown


class SlowMlflow:
    """Answers like a tracker's process, as soon as it is let."""

    def __init__(self) -> None:
        self.may_answer, self.down = Event(), False
        self.shown: list[list[int]] = []

    def sync_run(self, run: int, *_: object) -> Shown:
        return self._answer([run])[0]

    def sync_triggers(self, _run: int, triggers: list[int], *_: object) -> list[Shown]:
        return self._answer(triggers)

    def _answer(self, ids: list[int]) -> list[Shown]:
        assert self.may_answer.wait(30)
        if self.down:
            raise TrackingError("mlflow", "it does not answer")
        self.shown.append(ids)
        return [Shown(f"run-{each}", f"http://mlflow/{each}") for each in ids]


class Replay:
    """Links of a Dagster run, and the tags and warnings that it gets."""

    def __init__(self, mlflow: SlowMlflow | None) -> None:
        self.tags: dict[str, str] = {}
        self.warnings: list[str] = []
        instance = SimpleNamespace(add_run_tags=lambda _, tags: self.tags.update(tags))
        context: Any = SimpleNamespace(
            run=SimpleNamespace(run_id="dagster-1"), instance=instance, log=SimpleNamespace(warning=self.warnings.append)
        )
        platform: Any = SimpleNamespace(transaction=self._transaction)
        self.forgotten: list[Any] = []
        self.links = TrackingBehind(context, mlflow, platform)  # type: ignore[arg-type]  # it answers the same questions

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        yield SimpleNamespace(execute=self.forgotten.append)

    def name(self, *triggers: int) -> None:
        for number in triggers:
            trigger = SimpleNamespace(id=number, partition_key=f"trigger-{number}")
            self.links.name_trigger(SimpleNamespace(run=SimpleNamespace(id=100), trigger=trigger))  # type: ignore[arg-type]

    def name_run(self) -> None:
        self.links.name_run(SimpleNamespace(id=100))  # type: ignore[arg-type]


@pytest.fixture
def mlflow() -> Iterator[SlowMlflow]:
    slow = SlowMlflow()
    yield slow
    slow.may_answer.set()


def test_nothing_waits_for_mlflow_before_the_end(mlflow: SlowMlflow) -> None:
    replay = Replay(mlflow)
    replay.name_run()
    replay.name(1, 2, 1)
    assert (replay.links.run_page, replay.links.trigger_page("trigger-1"), replay.links.is_off) == (None, None, False)
    mlflow.may_answer.set()
    replay.name(3)
    replay.links.close()
    assert replay.links.run_page == "http://mlflow/100"
    assert [replay.links.trigger_page(f"trigger-{n}") for n in (1, 2, 3)] == [f"http://mlflow/{n}" for n in (1, 2, 3)]
    assert replay.tags == {"mlflow/run_id": "run-100"}
    assert mlflow.shown[0] == [100]
    assert sorted(each for ids in mlflow.shown[1:] for each in set(ids)) == [1, 2, 3]


def test_triggers_named_while_mlflow_rests_are_shown_together(mlflow: SlowMlflow) -> None:
    mlflow.may_answer.set()
    replay = Replay(mlflow)
    replay.name_run()
    replay.links.wait()
    replay.name_run()
    while len(mlflow.shown) < 2:
        sleep(0.001)
    for number in (1, 2, 1, 3):
        replay.name(number)
        sleep(0.01)
    replay.links.wait()
    assert mlflow.shown == [[100], [100], [1, 2, 3]]
    replay.links.close()


def test_a_mlflow_that_fails_is_told_nothing_more_and_warned_of_once(mlflow: SlowMlflow) -> None:
    mlflow.down = True
    mlflow.may_answer.set()
    replay = Replay(mlflow)
    replay.name_run()
    replay.name(1)
    replay.links.wait()
    assert replay.links.is_off
    mlflow.down = False
    replay.name(2)
    replay.links.close()
    assert mlflow.shown == []
    assert len(replay.warnings) == 1
    assert "does not answer" in replay.warnings[0]
    assert replay.forgotten, "the next sync of the run shows what is missing"


def test_without_mlflow_there_are_no_pages() -> None:
    replay = Replay(None)
    replay.name_run()
    replay.name(1)
    replay.links.close()
    assert replay.links.is_off
    assert replay.links.run_page is replay.links.trigger_page("trigger-1") is None
    assert replay.warnings == []
