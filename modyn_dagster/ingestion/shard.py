"""The shard of a batch: the bytes of those samples that are not read from their source."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from modyn_dagster.ingestion.formats.base import ByteArray
from modyn_dagster.ingestion.places import shard_of
from modyn_dagster.storage import StagedFile


@contextmanager
def staged_shard(home: Path, dataset: str, ordinal: int, parts: Iterable[ByteArray] | None) -> Iterator[StagedFile | None]:
    """Write a batch's shard, if it has one, before the transaction that gives it its name; gone after the block otherwise.

    Nobody waits for a lock meanwhile. Raises what making the parts raises, and ``WriteFailed``.
    """
    if parts is None:
        yield None
        return
    shard = StagedFile(home / shard_of(dataset, ordinal))
    try:
        for part in parts:
            shard.write(part.data)
        shard.finish()
        yield shard
    finally:
        shard.discard()
