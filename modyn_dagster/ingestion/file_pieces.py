"""One file per sample: small files are packed into the batch's shard, large ones are read where they lie."""

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Final

import numpy as np

from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.file_times import time_of_file
from modyn_dagster.ingestion.formats.base import Ranges
from modyn_dagster.ingestion.labels import ClassLabels, class_texts, target_texts
from modyn_dagster.ingestion.members import Members, sidecar_of
from modyn_dagster.ingestion.piece import Piece
from modyn_dagster.ingestion.source import LoadedFile
from modyn_dagster.spec.dataset import DatasetSpec

#: Larger files stay where they are, if that is on this machine.
PACKED_BYTES: Final = 1 << 20

Load = Callable[[str], LoadedFile]


def file_piece(spec: DatasetSpec, members: Members, load: Load, *, in_place: bool, as_integers: bool | None) -> Piece:
    """The samples of a batch, one per file.

    Args:
        spec: of the dataset.
        members: of the batch.
        load: reads a file.
        in_place: whether large files can be read where they lie.
        as_integers: whether classes are integers; None where no batch has decided it yet.

    Raises:
        DataError: an empty file, or a missing or bad label; names the file.
    """
    n = len(members.paths)
    times = np.empty(n, dtype="datetime64[us]")
    offsets, lengths = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    stays = np.zeros(n, dtype=bool)
    packed: list[np.ndarray[tuple[int], np.dtype[np.uint8]]] = []
    end = 0
    for i, path in enumerate(members.paths):
        loaded = load(path)
        if loaded.state.size == 0:
            raise DataError(path, "the file is empty")
        times[i] = time_of_file(spec.time, path, loaded.state, members.times) if spec.time.source != "column" else 0
        lengths[i] = loaded.state.size
        stays[i] = in_place and loaded.state.size > PACKED_BYTES
        if not stays[i]:
            offsets[i], end = end, end + loaded.state.size
            packed.append(loaded.data)
    labels, targets = _labels(spec, members, load, as_integers)
    return Piece(
        paths=tuple(members.paths),
        path_of=np.arange(n),
        rows=np.zeros(n, dtype=np.int64),
        times=times,
        labels=labels,
        targets=targets,
        attributes=None,
        in_place=stays,
        ranges=Ranges(offsets, lengths),
        payload=np.concatenate(packed) if packed else None,
    )


def _labels(
    spec: DatasetSpec, members: Members, load: Load, as_integers: bool | None
) -> "tuple[ClassLabels | None, np.ndarray[tuple[int], np.dtype[np.float64]] | None]":
    if spec.label is None:
        return None, None
    texts = [_label_text(spec, path, members.labels, load) for path in members.paths]
    if spec.label.kind == "target":
        return None, target_texts(texts, members.paths)
    return class_texts(texts, members.paths, spec.label, as_integers=as_integers), None


def _label_text(spec: DatasetSpec, path: str, from_manifest: Mapping[str, str], load: Load) -> str:
    if path in from_manifest:
        return from_manifest[path]
    sidecar = sidecar_of(spec, path)
    if sidecar is None:
        return PurePosixPath(path).parent.name
    try:
        return load(sidecar).data.tobytes().decode("utf-8").strip()
    except DataError as error:
        raise DataError(path, f"the label is missing: {sidecar!r} {error.message}") from error
    except UnicodeDecodeError as error:
        raise DataError(sidecar, f"the label is not UTF-8: {error.reason} at byte {error.start}") from error
