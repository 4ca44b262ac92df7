"""One time for all samples of a file: from the manifest, the file's name, or its modification time."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa

from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.source import FileState
from modyn_dagster.ingestion.times import parse_times
from modyn_dagster.spec.dataset import FileNameTime, ManifestTime, ModifiedTime


def time_of_file(
    spec: FileNameTime | ManifestTime | ModifiedTime, path: str, state: FileState, from_manifest: Mapping[str, np.datetime64]
) -> np.datetime64:
    """``datetime64[us]``, UTC. Raises ``DataError`` when the name does not match, or the store knows no modification time."""
    match spec:
        case ManifestTime():
            return from_manifest[path]
        case FileNameTime():
            return _from_name(spec, path)
        case ModifiedTime():
            if state.mtime_ns is None:
                raise DataError(path, "its store does not tell when it was modified; take the time from elsewhere")
            return np.datetime64(state.mtime_ns // 1000, "us")


def _from_name(spec: FileNameTime, path: str) -> np.datetime64:
    found = re.search(spec.pattern, PurePosixPath(path).name)
    text = found["time"] if found is not None else None
    if text is None:
        raise DataError(path, f"the file name does not match {spec.pattern!r}, so the samples have no time")
    try:
        time: np.datetime64 = parse_times(pa.array([text]), format=spec.format, unit="s", file=path, column=None)[0]
    except DataError as error:
        raise DataError(path, f"in the file name {error.message}") from error
    return time
