"""A clock that jumps and a server without free connections change no result."""

from collections.abc import Iterator
from typing import Final

import pytest

from modyn_dagster.catalog.database.urls import database_url
from tests.conftest import RunningServer
from tests.faults.facts import Facts
from tests.faults.installation import Installation, installed
from tests.faults.plan import Fault
from tests.faults.worker import Worker
from tests.projects.tiny import amount, timed

pytestmark = [pytest.mark.process, pytest.mark.soak("faults")]
DAY: Final = 86_400
STEPS: Final = (("ingest",), ("replay", "by_amount"), ("live", "by_time"))


@pytest.fixture(scope="module")
def installation(
    postgres_server: RunningServer, worker: Worker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    pipelines = [amount("by_amount", every=60, max_attempts=99), timed("by_time", every="1d", max_attempts=99)]
    folder = tmp_path_factory.mktemp("surroundings") / "first"
    with installed(postgres_server, worker, folder, pipelines) as installation:
        for day in range(3):
            installation.deliver(day)
        yield installation


@pytest.fixture(scope="module")
def expected(installation: Installation) -> Facts:
    """Facts of the steps without faults."""
    with installation.copied("undisturbed") as undisturbed:
        for task, *arguments in STEPS:
            undisturbed.must(task, *arguments)
        return undisturbed.facts()


@pytest.mark.parametrize("seconds", [-3 * 365 * DAY, -3600, 7 * DAY])
def test_a_clock_that_jumps_to_and_fro_changes_no_result(installation: Installation, expected: Facts, seconds: int) -> None:
    jumps = [Fault(["clock"], "jump", after, 1, value=seconds * sign) for after, sign in ((20, 1), (60, -2), (200, 1))]
    with installation.copied("jumping") as jumping:
        for task, *arguments in STEPS:
            assert jumping.run(task, *arguments, faults=jumps).is_done, jumping.story
            jumping.check()
        assert jumping.facts() == expected, jumping.story


@pytest.mark.parametrize("free", [0, 1, 2])
def test_a_server_without_free_connections_is_named_and_nothing_is_half_done(
    installation: Installation, expected: Facts, free: int
) -> None:
    with installation.copied("crowded") as crowded:
        database = database_url(crowded.settings, "modyn").database
        for task, *arguments in STEPS:
            crowded.server.execute(f'alter database "{database}" connection limit {free}')
            ending = crowded.run(task, *arguments)
            assert free or not ending.is_done, "no connection at all is enough for nothing"
            if not ending.is_done:
                # A replay and production wait for a while before they give up.
                assert str(ending.error).startswith(("DatabaseDown", "StillFailing")), crowded.story
                assert "too many connections" in str(ending.error), crowded.story
            crowded.server.execute(f'alter database "{database}" connection limit -1')
            crowded.check()
            crowded.must(task, *arguments)
        assert crowded.facts() == expected, crowded.story
