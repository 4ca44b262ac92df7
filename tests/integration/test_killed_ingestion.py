"""Ingestion killed at any of its steps and started again gives the same stream."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.datasets import sample
from modyn_dagster.keys import MAX_BATCH_SIZE
from modyn_dagster.storage import verify_checksum
from tests.conftest import RunningServer
from tests.integration.harness.deployment import deployed
from tests.integration.harness.fork_server import ForkServer
from tests.integration.harness.kill_points import Point, points_of
from tests.integration.harness.kill_world import World
from tests.integration.harness.outcome import row_counts
from tests.projects.tiny import DATASET, amount, batch_text, drop

CHUNKS: Final = 3
SOAK: Final = pytest.mark.soak("kills-ingestion")
BAD: Final = "day_01"

#: Rows of every table, the samples, and per batch key, state, counts and checksums.
Stream = tuple[dict[str, int], Sequence[tuple[Any, ...]], Sequence[tuple[Any, ...]]]


def stream_of(world: World) -> Stream:
    platform = world.deployment.platform
    # All but the dataset's number: one that was given to a transaction that died is not given again.
    columns = [column for column in sample.c if column is not sample.c.dataset_id]
    with platform.transaction() as conn:
        samples = [tuple(row) for row in conn.execute(sa.select(*columns).order_by(sample.c.key))]
    batches = world.deployment.batches()
    for batch in batches:
        if batch.state == "ingested":
            verify_checksum(platform.home / str(batch.index_path), str(batch.index_checksum))
    facts = [
        (b.ordinal, b.partition_key, b.state, b.error, b.n_samples, b.time_min, b.index_checksum, b.content_checksum)
        for b in batches
    ]
    return row_counts(platform), samples, facts


@pytest.fixture(scope="module")
def world(postgres_server: RunningServer, forks: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with deployed(postgres_server, tmp_path_factory.mktemp("ingestion"), [amount()]) as deployment:
        for day in range(3):
            drop(deployment.project, f"day_{day:02d}", batch_text(day))
        drop(deployment.project, BAD, batch_text(1).replace(",", ",not a number,", 1))
        world = World(deployment, postgres_server, forks)
        world.prepare()
        yield world


@pytest.fixture(scope="module")
def undisturbed(world: World) -> tuple[list[Point], Stream]:
    with world.copied("whole") as whole:
        result = whole.import_history()
        assert result.error is None, result.error
        return points_of(result.passed), stream_of(whole)


@SOAK
def test_an_undisturbed_import_has_good_batches_and_the_bad_one(undisturbed: tuple[list[Point], Stream]) -> None:
    points, (_, samples, batches) = undisturbed
    assert [(row[1], row[2]) for row in batches] == [("day_00", "ingested"), (BAD, "failed"), ("day_02", "ingested")]
    assert {row[0] // MAX_BATCH_SIZE for row in samples} == {0, 2}
    assert {"commit", "rename"} == {point.kind for point in points}


@pytest.mark.parametrize(
    "chunk",
    [pytest.param(slice(n, None, CHUNKS), id=str(n), marks=SOAK) for n in range(CHUNKS)],
)
def test_a_killed_ingestion_started_again_gives_the_same_stream(
    world: World, undisturbed: tuple[list[Point], Stream], chunk: slice
) -> None:
    points, stream = undisturbed
    for number, point in enumerate(points[chunk]):
        with world.copied(f"i{chunk.start}_{chunk.step}_{number}") as copy:
            killed = copy.import_history(point)
            assert killed.exit_code == -9, f"{point}: {killed.error}"
            again = copy.import_history()
            assert again.error is None, f"{point}: {again.error}"
            assert stream_of(copy) == stream, str(point)
            ingested = {key for key, state in copy.deployment.states().items() if state == "ingested"}
            [shown] = copy.materialized([DATASET, "samples"])
            assert shown >= ingested
