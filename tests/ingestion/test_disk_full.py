"""A disk that fills up: limits on the size of files stand in for it, in a process of its own."""

import multiprocessing
import resource
from pathlib import Path

import sqlalchemy as sa

from modyn_dagster.catalog.database.engine import open_engine
from modyn_dagster.errors import WriteFailed
from modyn_dagster.ingestion.ingest import ingest_batch
from tests.ingestion.world import World, dataset_spec

SPEC = dataset_spec()


def ingest_on_a_full_disk(url: sa.URL, home: Path, root: str, report: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    try:
        ingest_batch(open_engine(url), home, SPEC, root, "a")
    except WriteFailed as error:
        report.write_text(str(error))


def test_a_disk_that_is_full_names_the_index_keeps_the_batch_open_and_leaves_nothing(world: World, tmp_path: Path) -> None:
    world.write("a.csv", "time,x,label\n" + "2020-01-01,1,0\n" * 2000)
    world.register_all(SPEC)
    report = tmp_path / "report"
    arguments = (world.engine.url, world.home, str(world.root), report)
    process = multiprocessing.get_context("fork").Process(target=ingest_on_a_full_disk, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert report.read_text() == f"{world.home}/batches/d/0.arrow: cannot be written: File too large"
    assert (world.states(SPEC), world.rows(SPEC), world.files()) == ({"a": "open"}, [], {})
    assert world.ingest(SPEC, "a").n_samples == 2000
