"""A model as it lies in the store: everything but its tensors, whichever kind of file it is."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import BinaryIO, Final

from modyn_dagster.errors import CorruptFile, StorageError
from modyn_dagster.model_store.format.codec import Codec
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.metadata import About
from modyn_dagster.model_store.format.pack import Entry, read_pack
from modyn_dagster.model_store.format.record import Record
from modyn_dagster.model_store.format.safetensors_header import encode_header, read_header

PLAIN: Final = ".safetensors"
PACKED: Final = ".pack"


@dataclass(frozen=True)
class Stored:
    """One model of the store.

    Attributes:
        id: its identity, which its record has been compared with.
        path: its file.
        n_bytes: size of that.
        record: names, dtypes, shapes and hashes.
        entries: where each tensor is; empty when there are no weights.
        about: how and why it is stored as it is.
    """

    id: ModelId
    path: PurePath
    n_bytes: int
    record: Record
    entries: Mapping[str, Entry]
    about: About

    @property
    def has_weights(self) -> bool:
        """Whether they can be read, rather than trained again."""
        return bool(self.entries) or not self.record.leaves

    @cached_property
    def held(self) -> Mapping[str, str]:
        """Name by hash, of the tensors whose bytes are in this file."""
        return {self.record.leaves[name].hash: name for name, entry in self.entries.items() if entry.codec != Codec.ELSEWHERE}

    @cached_property
    def homes(self) -> frozenset[ModelId]:
        """The other models whose files are needed to read this one."""
        return frozenset(entry.home for entry in self.entries.values() if entry.home is not None) - {self.id}

    @cached_property
    def needs(self) -> frozenset[ModelId]:
        """The models it cannot be had without: their files, or the base to train it again from."""
        start = None if self.has_weights else self.about.start
        return self.homes if start is None else self.homes | {start}


def file_of(root: PurePath, model: ModelId, suffix: str) -> PurePath:
    """The path of a model's file."""
    return root / f"{model[:2]}/{model}{suffix}"


def read_stored(file: BinaryIO, path: PurePath, model: ModelId) -> Stored:
    """Parse and check a model's file, without its tensors. ``CorruptFile`` says what is wrong with it."""
    with file:
        n_bytes = file.seek(0, os.SEEK_END)
        file.seek(0)
        if path.suffix == PACKED:
            record, entries, about = read_pack(file, path)
            _require_identity(record, path, model)
            return Stored(model, path, n_bytes, record, entries, about)
        header = read_header(file, path)
    record = Record.from_header(header, path)
    _require_identity(record, path, model)
    try:
        found = About.from_metadata(header.metadata)
        about = found or About("snapshot")
    except (ValueError, RecursionError) as error:
        raise CorruptFile(path, "the circumstances of a model", str(error)) from error
    # A state has one encoding: what was never read, such as padding, must not have changed either.
    if _encoded(record, found) != header.encoded:
        raise CorruptFile(path, f"the header of model {model} as it was written", "another one")
    places = {name: header.places[name] for name in record.leaves}
    start = header.data_start
    entries = {name: Entry(Codec.RAW, start + place.start, start + place.end) for name, place in places.items()}
    return Stored(model, path, n_bytes, record, entries, about)


def _encoded(record: Record, about: About | None) -> bytes | None:
    try:
        extra = {} if about is None else about.to_metadata()
        return encode_header(record.to_metadata() | extra, record.places())
    except (UnicodeEncodeError, RecursionError, StorageError):
        # Nothing that was ever written.
        return None


def _require_identity(record: Record, path: PurePath, model: ModelId) -> None:
    if record.id != model:
        raise CorruptFile(path, f"the record of model {model}", f"that of {record.id}")
