"""Pieces of datasets with one file per sample: small files are packed into the shard, large ones are read in place."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from fastpath.array_types import TimeArray
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.batches.members import Members, sidecar_of
from modyn_dagster.ingestion.batches.piece import Piece, SmallFiles
from modyn_dagster.ingestion.formats.base import Ranges
from modyn_dagster.ingestion.formats.ids import ids_of_files
from modyn_dagster.ingestion.formats.labels import ClassLabels, class_texts, target_texts
from modyn_dagster.ingestion.formats.times import time_of_file
from modyn_dagster.ingestion.sources.files import FileState, FileVersion, LoadedFile
from modyn_dagster.ingestion.sources.source import Source
from modyn_dagster.parallel_map import map_in_threads
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.formats import FilesFormat

#: Files whose states or labels one thread reads at a time.
_GROUP: Final = 64

#: Called with path and version of every file that was read.
Record = Callable[[str, FileVersion], None]


def file_piece(
    spec: DatasetSpec, format: FilesFormat, members: Members, source: Source, record: Record, *, as_integers: bool | None
) -> Piece:
    """The samples of a batch, one per file.

    Of small files only the states are read here. Their bytes are read when the shard is written, so they need not fit into
    memory.

    Args:
        spec: of the dataset.
        format: of the dataset.
        members: of the batch.
        source: of the files.
        record: called with path and version of every file that was read, here or later.
        as_integers: true if classes are integers; None if no batch has decided it yet.

    Raises:
        DataError: an empty file, or a missing or bad label; names the file.
    """
    states = _states(source, members.paths)
    times = _times(spec, members, states)
    labels, targets = _labels(spec, members, source, record, as_integers)
    lengths = np.array([state.size for state in states], dtype=np.int64)
    in_place = (lengths > format.packed_bytes) & source.in_place
    large = [members.paths[i] for i in np.flatnonzero(in_place)]
    for path, version in zip(large, map_in_threads(source.version, large)):
        record(path, version)
    return Piece(
        paths=tuple(members.paths),
        times=times,
        labels=labels,
        targets=targets,
        attributes=None,
        in_place=in_place,
        ranges=Ranges(np.zeros(len(lengths), dtype=np.int64), lengths),
        payload=SmallFiles(source, members.paths, states, record),
        ids=None if spec.id is None else ids_of_files(members.paths, spec.id.source),
    )


def _states(source: Source, paths: Sequence[str]) -> list[FileState]:
    def read(group: Sequence[str]) -> list[FileState]:
        return [_state(source, path) for path in group]

    return [state for group in map_in_threads(read, _groups(paths)) for state in group]


def _state(source: Source, path: str) -> FileState:
    state = source.state(path)
    if state.size == 0:
        raise DataError(path, "the file is empty")
    return state


def _times(spec: DatasetSpec, members: Members, states: Sequence[FileState]) -> TimeArray:
    assert spec.time.source != "column"  # noqa: S101 - refused by the spec; narrows the type
    times = [time_of_file(spec.time, path, state, members.times) for path, state in zip(members.paths, states)]
    return np.array(times, dtype="datetime64[us]")


def _labels(
    spec: DatasetSpec, members: Members, source: Source, record: Record, as_integers: bool | None
) -> tuple[ClassLabels | None, npt.NDArray[np.float64] | None]:
    if spec.label is None or spec.label.from_.source == "label_files":
        return None, None

    def read(group: Sequence[str]) -> list[tuple[str, LoadedFile | None]]:
        return [_label_text(spec, path, members.labels, source) for path in group]

    texts = []
    for group in map_in_threads(read, _groups(members.paths)):
        for text, sidecar in group:
            texts.append(text)
            if sidecar is not None:
                record(sidecar.path, sidecar.version)
    if spec.label.kind == "target":
        return None, target_texts(texts, members.paths)
    return class_texts(texts, members.paths, spec.label, as_integers=as_integers), None


def _label_text(spec: DatasetSpec, path: str, from_manifest: Mapping[str, str], source: Source) -> tuple[str, LoadedFile | None]:
    """Label of a sample, and its sidecar file if the label has one."""
    if path in from_manifest:
        return from_manifest[path], None
    sidecar = sidecar_of(spec, path)
    if sidecar is None:
        folder = path.rpartition("/")[0]
        return folder.rpartition("/")[2], None
    try:
        loaded = source.load(sidecar)
        return loaded.data.tobytes().decode("utf-8").strip(), loaded
    except DataError as error:
        raise DataError(path, f"the label is missing: {sidecar!r} {error.message}") from error
    except UnicodeDecodeError as error:
        raise DataError(sidecar, f"the label is not UTF-8: {error.reason} at byte {error.start}") from error


def _groups(paths: Sequence[str]) -> list[Sequence[str]]:
    return [paths[start : start + _GROUP] for start in range(0, len(paths), _GROUP)]
