"""Deletions that are done: samples of the tiny project with fingerprints, purged, and recorded as a finished request."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from modyn_dagster.catalog.removal.deletion_requests import DeletionRequestRow, insert_request, move_request
from modyn_dagster.keys import KeyArray
from modyn_dagster.pipeline.operate.deletion.document import DeletionDocument, Selection, new_salt, samples_by_batch
from modyn_dagster.pipeline.operate.deletion.report.taking import take_fingerprints
from tests.pipeline.deleting import delete, purge
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, batch_text

DAY = 1 << 32
#: Samples that go: the fourth and the seventh of the second day.
GONE = np.array([DAY + 3, DAY + 6], dtype=np.uint64)


def row_of(key: int) -> bytes:
    """Row of a sample in its CSV file."""
    return batch_text(key >> 32).splitlines()[1 + key % DAY].encode()


def finish_deletion(world: World, keys: KeyArray = GONE, *, purging: bool = True) -> DeletionRequestRow:
    """Delete samples, with fingerprints taken before, and record the request as finished."""
    platform, view = world.platform, world.platform.view(DATASET)
    salt, names = new_salt(), {batch.ordinal: batch.partition_key for batch in view.batches}
    document = DeletionDocument(
        dataset=DATASET,
        requested_at=datetime.now(UTC),
        actor="a person",
        reason="request 17",
        selection=Selection(by="where", text="attributes.user = 4711"),
        purge=purging,
        salt=salt,
        batches=samples_by_batch(keys, names),
    )
    with platform.transaction() as conn:
        row = insert_request(conn, view.row.id, keys, document.model_dump(mode="json"))
    take_fingerprints(platform, view.row, keys, row.id, salt)
    (purge if purging else delete)(world, keys)
    with platform.transaction() as conn:
        return move_request(conn, row, "finished", document.model_dump(mode="json"))


def without_rows(path: Path, rows: Sequence[bytes]) -> None:
    """Take rows out of an original, as a person would after a deletion."""
    path.write_bytes(b"\n".join(line for line in path.read_bytes().split(b"\n") if line not in rows))
