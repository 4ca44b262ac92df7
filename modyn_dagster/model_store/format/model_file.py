"""Model in the store without its tensors, from either kind of file."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import BinaryIO, Final

from modyn_dagster.errors import CorruptFile, StorageError
from modyn_dagster.model_store.format.codec import Codec
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.metadata import ModelMetadata
from modyn_dagster.model_store.format.pack import Entry, read_pack
from modyn_dagster.model_store.format.record import Record
from modyn_dagster.model_store.format.safetensors_header import encode_header, read_header

PLAIN: Final = ".safetensors"
PACKED: Final = ".pack"


@dataclass(frozen=True)
class StoredModel:
    """One model of the store.

    Attributes:
        id: identity, checked against the record.
        path: file of the model.
        n_bytes: size of the file.
        record: names, dtypes, shapes and hashes.
        entries: place of each tensor; empty for a model without weights.
        metadata: strategy, lineage and provenance.
    """

    id: ModelId
    path: PurePath
    n_bytes: int
    record: Record
    entries: Mapping[str, Entry]
    metadata: ModelMetadata

    @property
    def has_weights(self) -> bool:
        """True if the weights can be read, rather than trained again."""
        return bool(self.entries) or not self.record.leaves

    @cached_property
    def own_tensors(self) -> Mapping[str, str]:
        """Name by hash, of the tensors whose bytes are in this file."""
        return {self.record.leaves[name].hash: name for name, entry in self.entries.items() if entry.codec != Codec.ELSEWHERE}

    @cached_property
    def holders(self) -> frozenset[ModelId]:
        """Other models whose files are needed to read this one."""
        return frozenset(entry.holder for entry in self.entries.values() if entry.holder is not None) - {self.id}

    @cached_property
    def dependencies(self) -> frozenset[ModelId]:
        """Models without which this one cannot be recovered: holders of its tensors, or the base to train it from."""
        base = None if self.has_weights else self.metadata.training_base
        return self.holders if base is None else self.holders | {base}


def file_of(root: PurePath, model: ModelId, suffix: str) -> PurePath:
    """Path of the file of a model."""
    return root / f"{model[:2]}/{model}{suffix}"


def read_stored(file: BinaryIO, path: PurePath, model: ModelId) -> StoredModel:
    """Parse and check the file of a model without its tensors. ``CorruptFile`` describes the fault."""
    with file:
        n_bytes = file.seek(0, os.SEEK_END)
        file.seek(0)
        if path.suffix == PACKED:
            record, entries, metadata = read_pack(file, path)
            _require_identity(record, path, model)
            return StoredModel(model, path, n_bytes, record, entries, metadata)
        header = read_header(file, path)
    record = Record.from_header(header, path)
    _require_identity(record, path, model)
    try:
        metadata = ModelMetadata.from_metadata(header.metadata)
    except (ValueError, RecursionError) as error:
        raise CorruptFile(path, "the metadata of a model", str(error)) from error
    # A state has one encoding: bytes that nobody reads, such as padding, must not have changed either.
    if _encoded(record, metadata) != header.encoded:
        raise CorruptFile(path, f"the header of model {model} as it was written", "another one")
    places = {name: header.places[name] for name in record.leaves}
    start = header.data_start
    entries = {name: Entry(Codec.RAW, start + place.start, start + place.end) for name, place in places.items()}
    return StoredModel(model, path, n_bytes, record, entries, metadata)


def _encoded(record: Record, metadata: ModelMetadata) -> bytes | None:
    try:
        return encode_header(record.to_metadata() | metadata.to_metadata(), record.places())
    except (UnicodeEncodeError, RecursionError, StorageError):
        # No saver can have written such values.
        return None


def _require_identity(record: Record, path: PurePath, model: ModelId) -> None:
    if record.id != model:
        raise CorruptFile(path, f"the record of model {model}", f"that of {record.id}")
