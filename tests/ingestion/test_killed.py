import multiprocessing
import signal
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from modyn_dagster.spec.dataset import DatasetSpec
from tests.ingestion.killing import DONE, import_until
from tests.ingestion.world import World, dataset_spec


def spec_named(name: str) -> DatasetSpec:
    return dataset_spec(name=name, format={"kind": "parquet"}, attributes=["x"])


def import_in_a_process(world: World, spec: DatasetSpec, step: int) -> int | None:
    # A fork has everything imported already: there are many steps to be killed at.
    context = multiprocessing.get_context("fork")
    process = context.Process(target=import_until, args=(step, world.engine.url, world.home, spec, str(world.root), "count:3"))
    process.start()
    process.join()
    return process.exitcode


def outcome(world: World, spec: DatasetSpec) -> tuple[Any, ...]:
    """The stream and its files, without the name of the dataset."""
    batches = [
        (batch.ordinal, batch.partition_key, batch.state, batch.n_samples, batch.index_checksum) for batch in world.batches(spec)
    ]
    mine = {path: content for path, content in world.files().items() if f"/{spec.name}/" in path}
    return batches, world.rows(spec), {path.replace(spec.name, ""): content for path, content in mine.items()}


def test_an_import_killed_at_any_step_and_started_again_ends_the_same(world: World) -> None:
    begin = datetime(2020, 1, 1)
    for file in range(2):
        rows = [begin + timedelta(days=(7 * i + file) % 5) for i in range(3)]
        labels = [f"c{(i + file) % 3}" for i in range(3)]
        pq.write_table(pa.table({"time": rows, "x": ["text"] * 3, "label": labels}), world.root / f"{file}.parquet")
    undisturbed = spec_named("undisturbed")
    assert import_in_a_process(world, undisturbed, 0) == DONE
    expected = outcome(world, undisturbed)
    assert [batch[2] for batch in expected[0]] == ["ingested"] * 2
    for step in count(1):
        spec = spec_named(f"killed_{step}")
        exit_code = import_in_a_process(world, spec, step)
        if exit_code == DONE:
            break
        assert exit_code == -signal.SIGKILL
        assert world.run_import(spec, "count:3").failed == []
        assert outcome(world, spec) == expected, f"killed at step {step}"
    # Two renames of two files for each batch, both watched before and after, and commits around them.
    assert step > 12
