"""Index and shard of an ingested batch, staged once more to replace damaged ones with the same bytes."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Self

from fastpath.format.index_file import write_index_to
from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.data.batch_index import index_path
from modyn_dagster.ingestion.batches.batch_files import BatchContent, StagedShard, extents_of, indexed_files, staged_shard
from modyn_dagster.ingestion.batches.known_labels import index_labels
from modyn_dagster.storage import StagedFile


class RemadeBatch:
    """A context that stages index and shard from the content of a batch, and removes them at the end unless published.

    Attributes:
        checksum: checksum of the staged index, which has the form of the recorded one: with digests of blocks, or without.
    """

    def __init__(self, home: Path, dataset: DatasetRow, batch: BatchRow, content: BatchContent) -> None:
        self._home, self._dataset, self._batch, self._content = home, dataset, batch, content
        self._shard: StagedShard | None = None
        self._stack = ExitStack()
        self.checksum = ""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            assembled, name, ordinal = self._content.assembled, self._dataset.name, self._batch.ordinal
            self._shard = stack.enter_context(staged_shard(self._home, name, ordinal, assembled.shard))
            labels = index_labels(assembled.labels, self._dataset.class_names)
            extents, with_blocks = extents_of(self._content), indexed_files(self._content, self._shard)
            without_blocks = [replace(file, blocks=None) for file in with_blocks]
            for files in (with_blocks, without_blocks):
                self._index = StagedFile(self._home / index_path(name, ordinal))
                stack.callback(self._index.discard)
                with self._index.as_hashed_file() as out:
                    write_index_to(out, assembled.times, labels, assembled.targets, extents, files)
                if out.checksum == self._batch.index_checksum:
                    break
                self._index.discard()
            self.checksum = out.checksum
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def is_unpublished(self) -> bool:
        """True while the files can be published: nobody else has made them again since."""
        return self._index.is_unpublished and (self._shard is None or self._shard.is_unpublished)

    def publish(self) -> None:
        """Replace the shard, if the batch has one, then the index, each in one rename. The row of the batch must be locked."""
        if self._shard is not None:
            self._shard.publish()
        self._index.publish()
