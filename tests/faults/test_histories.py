"""Histories with faults, kills, power cuts and restarts end as the same histories without."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import RunningServer
from tests.faults.histories import LIVE, REPLAYED, History
from tests.faults.installation import installed
from tests.faults.worker import Worker

pytestmark = pytest.mark.process
#: Seeds of the soak part; MODYN_TESTS_SEEDS=FIRST-LAST takes others.
SEEDS: Final = os.environ.get("MODYN_TESTS_SEEDS", "0-14")


def seeds() -> range:
    first, _, last = SEEDS.partition("-")
    return range(int(first), int(last or first) + 1)


@pytest.fixture
def history(postgres_server: RunningServer, worker: Worker, tmp_path: Path, seed: int) -> Iterator[History]:
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails, also where nothing was drawn yet
    pipelines = [REPLAYED, LIVE]
    with (
        installed(postgres_server, worker, tmp_path / "suffering", pipelines) as suffering,
        installed(postgres_server, worker, tmp_path / "undisturbed", pipelines) as undisturbed,
    ):
        history = History(seed, suffering, undisturbed)
        yield history
        print(f"seed {seed}: {dict(history.tally)}")  # noqa: T201


@pytest.mark.parametrize("seed", [3])
def test_a_disturbed_history_ends_as_if_undisturbed(history: History) -> None:
    history.live_through(2)
    assert history.tally["calls struck"] > 0, "a history without a fault shows nothing"


@pytest.mark.soak("faults")
@pytest.mark.parametrize("seed", seeds())
def test_long_disturbed_histories_end_as_if_undisturbed(history: History) -> None:
    history.live_through(8)
