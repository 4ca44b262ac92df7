"""Label files that a producer has not finished: named, alone in failing, and ingested once they are complete."""

import io
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from modyn_dagster.errors import DataError
from modyn_dagster.keys import key_of
from modyn_dagster.spec.dataset import DatasetSpec
from tests.ingestion.labels.label_world import LabelWorld, later_spec, samples


def parquet_spec() -> DatasetSpec:
    batches = {"kind": "file", "pattern": "*.parquet"}
    return later_spec({"n_classes": 2, "files": {"root": "labels", "format": {"kind": "parquet"}, "batches": batches}})


def parquet(labels: Mapping[int, int], day: int) -> bytes:
    """A label file, all of whose labels were known on one day of January 2024."""
    times = [datetime(2024, 1, day, tzinfo=UTC)] * len(labels)
    columns: dict[str, Any] = {"id": list(labels), "label": list(labels.values())}
    out = io.BytesIO()
    pq.write_table(pa.table(columns | {"known_at": pa.array(times, pa.timestamp("us", tz="UTC"))}), out)
    return out.getvalue()


WHOLE = parquet({7: 1, 9: 0, 11: 1}, day=4)
#: Nothing yet, the first magic number, a part of the rows, all rows without the footer, the footer without its end.
CUTS = (0, 4, 100, len(WHOLE) // 2, len(WHOLE) - 8, len(WHOLE) - 1)


@pytest.mark.parametrize("cut", CUTS)
def test_a_half_written_parquet_file_is_named_the_rest_goes_on_and_it_counts_once_when_complete(
    world: LabelWorld, cut: int
) -> None:
    spec = parquet_spec()
    world.write("1.csv", samples(1, [7, 8]))
    world.write("2.csv", samples(2, [9, 10]))
    world.write("../labels/a.parquet", WHOLE[:cut], mtime=1e9)
    world.write("../labels/b.parquet", parquet({8: 1, 7: 0}, day=3), mtime=1e9)
    summary = world.import_all(spec)
    assert [key for key, _ in summary.failed_labels] == ["a"]
    with pytest.raises(DataError, match=r"^a\.parquet: "):
        raise summary.failed_labels[0][1]
    first = [(key_of(0, 0), 0, "2024-01-03T00:00:00"), (key_of(0, 1), 1, "2024-01-03T00:00:00")]
    assert [row[:3] for row in world.known(spec)] == first
    assert world.waiting(spec) == []
    assert world.label_batches(spec)[0].n_rows is None

    # As long as it stays as it was, nothing is tried again.
    before = world.look_at_labels(spec)
    assert world.look_at_labels(spec, before).registered == []
    world.write("../labels/a.parquet", WHOLE, mtime=1.1e9)
    before = world.look_at_labels(spec, before)
    assert (before.registered, before.waiting) == ([], ["a.parquet"])
    [again] = world.look_at_labels(spec, before).registered
    assert world.ingest_labels(spec, again.partition_key).n_waiting == 1
    later = [(key_of(0, 0), 1, "2024-01-04T00:00:00"), (key_of(1, 0), 0, "2024-01-04T00:00:00")]
    assert [row[:3] for row in world.known(spec)] == sorted([*first, *later])
    assert [(batch.partition_key, batch.state, batch.n_rows) for batch in world.label_batches(spec)] == [
        ("a", "failed", None),
        ("b", "ingested", 2),
        ("a~2", "ingested", 3),
    ]
    assert [(each.sample_id, each.n_labels) for each in world.waiting(spec)] == [("11", 1)]
    assert world.look_at_labels(spec, before).registered == []
    assert world.import_all(spec).failed_labels == []
    assert len(world.known(spec)) == 4


def test_a_parquet_file_that_still_grows_is_no_label_batch_yet(world: LabelWorld) -> None:
    spec = parquet_spec()
    world.write("1.csv", samples(1, [7, 9]))
    world.run_import(spec)
    world.write("../labels/a.parquet", WHOLE[:100], mtime=1e9)
    look = world.look_at_labels(spec, now=1e9)
    assert (look.registered, look.waiting) == ([], ["a.parquet"])
    world.write("../labels/a.parquet", WHOLE, mtime=1e9 + 1)
    look = world.look_at_labels(spec, look, now=1e9 + 2)
    assert (look.registered, look.waiting) == ([], ["a.parquet"])
    [batch] = world.look_at_labels(spec, look, now=1e9 + 60).registered
    assert world.ingest_labels(spec, batch.partition_key).n_known == 2
