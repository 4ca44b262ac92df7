"""Discovery of ready batches: files at rest, and directories and manifests with a ready file."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from modyn_dagster.catalog.registration.batches import Announcement
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.batches.members import is_unfinished
from modyn_dagster.ingestion.sources.files import NOT_TEXT, FileState, natural_key
from modyn_dagster.ingestion.sources.source import Source
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.values.digest import bytes_digest

#: Size and time of last change by path, JSON. The caller keeps it from one look to the next.
FileStates = Mapping[str, list[int | None]]

_MANIFEST_SUFFIX: Final = ".manifest"
#: Characters that Dagster refuses in a partition key.
_NOT_IN_KEYS: Final = re.compile(r"[\x00-\x1f,|]|\.\.\.")
#: Bytes of a partition key.
_LONGEST_KEY: Final = 500


@dataclass(frozen=True, slots=True)
class Discovery:
    """Result of a look.

    Attributes:
        announcements: ready batches that were not announced before, in natural order of their paths.
        waiting: paths that may still be written.
        file_states: of the waiting paths, for the next look.
    """

    announcements: list[Announcement]
    waiting: list[str]
    file_states: FileStates


def discover_ready(
    source: Source, spec: DatasetSpec, *, known: Collection[str] = (), file_states: FileStates | None = None, now: float
) -> Discovery:
    """Look for new batches.

    A file is ready when the previous look saw it with the same size and time of last change, and that change is
    ``quiet_seconds`` old. A directory or manifest is ready once its ready file exists.

    Args:
        source: of the dataset's files.
        spec: of the dataset.
        known: paths that were announced before.
        file_states: of the previous look; None for the first.
        now: seconds since 1970.
    """
    units = [unit for unit in find_units(source, spec) if unit not in known]
    if spec.batches.kind != "file":
        return Discovery([announce(spec, unit) for unit in units], [], {})
    states = {unit: state for unit in units if (state := _state(source, unit)) is not None}
    previous, now_ns, quiet_ns = file_states or {}, round(now * 1e9), round(spec.batches.quiet_seconds * 1e9)
    ready = [unit for unit in units if unit not in states or is_quiet(states[unit], previous.get(unit), now_ns, quiet_ns)]
    waiting = [unit for unit in units if unit not in ready]
    return Discovery([announce(spec, unit) for unit in ready], waiting, {unit: list(states[unit]) for unit in waiting})


def find_units(source: Source, spec: DatasetSpec) -> list[str]:
    """Find all files, ready directories or ready manifests of the dataset, in natural order."""
    match spec.batches.kind:
        case "file":
            paths = source.files(spec.batches.pattern)
        case "directory":
            markers = source.files(f"**/{spec.batches.ready}")
            paths = [marker.rpartition("/")[0] for marker in markers if "/" in marker]
        case "manifest":
            manifests = source.files(spec.batches.pattern)
            ready = set(source.files(f"{spec.batches.pattern}_READY"))
            paths = [manifest for manifest in manifests if f"{manifest}_READY" in ready]
    return sorted((path for path in paths if not is_unfinished(path)), key=natural_key)


def announce(spec: DatasetSpec, unit: str) -> Announcement:
    """The announcement of one file, directory or manifest."""
    name = unit.removeprefix(NOT_TEXT)
    key = name if spec.batches.kind == "directory" else partition_key_of(name)
    return Announcement(_bounded(_NOT_IN_KEYS.sub("_", key)), {"paths": [unit]})


def partition_key_of(path: str) -> str:
    """Partition key of a file: its path without suffix.

    >>> partition_key_of("2020/day_1.csv"), partition_key_of("may.manifest.csv")
    ('2020/day_1', 'may')
    """
    return str(PurePosixPath(path).with_suffix("")).removesuffix(_MANIFEST_SUFFIX)


def _bounded(key: str) -> str:
    """The key, or the beginning of a long one and a digest of it all: Postgres' indexes hold no texts of thousands of bytes."""
    text = key.encode()
    if len(text) <= _LONGEST_KEY:
        return key
    return f"{text[: _LONGEST_KEY - 20].decode(errors='ignore')}~{bytes_digest(text, 8)}"


def is_quiet(state: FileState, previous: list[int | None] | None, now_ns: int, quiet_ns: int) -> bool:
    """Test that a file has not changed since the previous look and was not written within ``quiet_ns``.

    A time of last change in the future (by the clock of another machine) is ignored.
    """
    written_just_now = state.mtime_ns is not None and 0 <= now_ns - state.mtime_ns < quiet_ns
    return previous == list(state) and not written_just_now


def _state(source: Source, unit: str) -> FileState | None:
    """State of a file; None for one without a state (a broken symlink), whose batch is announced and then fails."""
    try:
        return source.state(unit)
    except DataError:
        return None
