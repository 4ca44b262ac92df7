"""From a batch as it was announced to its files: one file, the files of a directory, or those a manifest names."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Final

import numpy as np

from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.manifests import read_manifest
from modyn_dagster.ingestion.order import natural_key
from modyn_dagster.ingestion.source import LoadedFile, Source
from modyn_dagster.spec.dataset import DatasetSpec

_UNFINISHED: Final = (".tmp", ".part", ".crdownload", "~")


@dataclass(frozen=True)
class Members:
    """The files of a batch.

    Attributes:
        paths: files that hold samples, in natural order.
        times: by path, where a manifest gives them.
        labels: texts by path, where a manifest gives them.
        manifests: as they were read.
    """

    paths: list[str]
    times: Mapping[str, np.datetime64] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    manifests: Sequence[LoadedFile] = ()

    def restricted(self, paths: Sequence[str]) -> "Members":
        """Only these files. Raises ``DataError`` for one that is no longer there."""
        known = set(self.paths)
        for path in paths:
            if path not in known:
                raise DataError(path, "is no longer part of the directory or manifest it was imported from")
        return replace(self, paths=sorted(paths, key=natural_key))


def resolve_members(source: Source, spec: DatasetSpec, units: Sequence[str]) -> Members:
    """The files of the units that a batch was announced by: files, directories or manifests, as the spec says.

    Raises ``DataError`` for a directory without samples, a bad manifest, or a file that two manifests name.
    """
    if spec.batches.kind == "file":
        return Members(sorted(units, key=natural_key))
    if spec.batches.kind == "directory":
        found = [path for unit in units for path in _samples_below(source, spec, unit)]
        return Members(sorted(found, key=natural_key))
    times: dict[str, np.datetime64] = {}
    labels: dict[str, str] = {}
    paths: dict[str, str] = {}
    manifests = [read_manifest(source, spec, unit) for unit in units]
    for manifest in manifests:
        for path in manifest.paths:
            if path in paths:
                raise DataError(manifest.loaded.path, f"{path!r} is listed by {paths[path]!r} too")
            paths[path] = manifest.loaded.path
        times |= manifest.times
        labels |= manifest.labels
    return Members(sorted(paths, key=natural_key), times, labels, [manifest.loaded for manifest in manifests])


def members_of(source: Source, spec: DatasetSpec, announced: Mapping[str, Any]) -> Members:
    """The files of a batch; a slice of a bulk import takes only some files of its directories or manifests."""
    members = resolve_members(source, spec, announced["paths"])
    return members if "files" not in announced else members.restricted(announced["files"])


def involved_paths(source: Source, spec: DatasetSpec, units: Sequence[str]) -> list[str]:
    """Every file that these units may fail for, as far as can be told: whose change is worth another try."""
    involved = set(units) if spec.batches.kind != "directory" else set()
    # A manifest or directory that cannot be read is at fault itself.
    with suppress(DataError):
        if spec.batches.kind == "directory":
            involved |= {path for unit in units for path in source.folder(unit)}
        elif spec.batches.kind == "manifest":
            paths = resolve_members(source, spec, units).paths
            involved |= {*paths, *(sidecar for path in paths if (sidecar := sidecar_of(spec, path)))}
    return sorted(involved or units, key=natural_key)


def is_unfinished(path: str) -> bool:
    """Whether a name says that the file is not meant to be read: hidden, or with a temporary suffix."""
    parts = path.split("/")
    return any(part.startswith(".") for part in parts) or parts[-1].endswith(_UNFINISHED)


def sidecar_of(spec: DatasetSpec, path: str) -> str | None:
    """The file with the label of a sample, where the dataset has such files."""
    if spec.label is None or spec.label.from_.source != "sidecar":
        return None
    return str(PurePosixPath(path).with_suffix(spec.label.from_.suffix))


def _samples_below(source: Source, spec: DatasetSpec, directory: str) -> list[str]:
    marker = spec.batches.ready if spec.batches.kind == "directory" else ""
    found = [path for path in source.folder(directory) if PurePosixPath(path).name != marker and not is_unfinished(path)]
    if spec.format.kind == "files":
        found = [path for path in found if path.endswith(tuple(spec.format.suffixes))]
    if not found:
        raise DataError(directory, "the directory holds no files of samples")
    return found
