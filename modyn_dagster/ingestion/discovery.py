"""Which batches are ready: files that have come to rest, directories and manifests whose ready file is there."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from modyn_dagster.catalog.registration import Announcement
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.batches.members import is_unfinished
from modyn_dagster.ingestion.sources.files import FileState, natural_key
from modyn_dagster.ingestion.sources.source import Source
from modyn_dagster.spec.dataset import DatasetSpec

#: What a look saw, JSON: size and time of last change by path. Kept by the caller from one look to the next.
Looks = Mapping[str, list[int | None]]

_MANIFEST_SUFFIX: Final = ".manifest"
#: What Dagster refuses in a partition key.
_NOT_IN_KEYS: Final = re.compile(r"[\x00-\x1f,|]|\.\.\.")


@dataclass(frozen=True, slots=True)
class Discovery:
    """What a look found.

    Attributes:
        announcements: batches that are ready and not known, in natural order of their path.
        waiting: paths that may still be written.
        looks: to be handed to the next look.
    """

    announcements: list[Announcement]
    waiting: list[str]
    looks: Looks


def discover_ready(
    source: Source, spec: DatasetSpec, *, known: Collection[str] = (), looks: Looks | None = None, now: float
) -> Discovery:
    """Look for new batches.

    A file is ready when the look before saw it with the same size and time of last change, and that change is
    ``quiet_seconds`` old. A directory or manifest is ready once its ready file is there.

    Args:
        source: of the dataset's files.
        spec: of the dataset.
        known: paths that were announced before.
        looks: of the look before; None for the first.
        now: seconds since 1970.
    """
    units = [unit for unit in find_units(source, spec) if unit not in known]
    if spec.batches.kind != "file":
        return Discovery([announce(spec, unit) for unit in units], [], {})
    seen = {unit: state for unit in units if (state := _look(source, unit)) is not None}
    before = looks or {}
    quiet_ns = round(spec.batches.quiet_seconds * 1e9)
    ready = [unit for unit in units if unit not in seen or is_quiet(seen[unit], before.get(unit), round(now * 1e9), quiet_ns)]
    waiting = [unit for unit in units if unit not in ready]
    return Discovery([announce(spec, unit) for unit in ready], waiting, {unit: list(seen[unit]) for unit in waiting})


def find_units(source: Source, spec: DatasetSpec) -> list[str]:
    """Every file, ready directory or ready manifest of the dataset, in natural order."""
    match spec.batches.kind:
        case "file":
            found = source.files(spec.batches.pattern)
        case "directory":
            markers = source.files(f"**/{spec.batches.ready}")
            found = [str(PurePosixPath(marker).parent) for marker in markers if "/" in marker]
        case "manifest":
            manifests = source.files(spec.batches.pattern)
            ready = set(source.files(f"{spec.batches.pattern}_READY"))
            found = [manifest for manifest in manifests if f"{manifest}_READY" in ready]
    return sorted((path for path in found if not is_unfinished(path)), key=natural_key)


def announce(spec: DatasetSpec, unit: str) -> Announcement:
    """The announcement of one file, directory or manifest."""
    key = unit if spec.batches.kind == "directory" else partition_key_of(unit)
    return Announcement(_NOT_IN_KEYS.sub("_", key), {"paths": [unit]})


def partition_key_of(path: str) -> str:
    """A file's path without suffix.

    >>> partition_key_of("2020/day_1.csv"), partition_key_of("may.manifest.csv")
    ('2020/day_1', 'may')
    """
    return str(PurePosixPath(path).with_suffix("")).removesuffix(_MANIFEST_SUFFIX)


def is_quiet(state: FileState, before: list[int | None] | None, now_ns: int, quiet_ns: int) -> bool:
    """Whether a file has not changed since the look before, and was not written just now.

    A time of last change in the future (another machine's clock) says nothing, then the two looks decide.
    """
    written_just_now = state.mtime_ns is not None and 0 <= now_ns - state.mtime_ns < quiet_ns
    return before == list(state) and not written_just_now


def _look(source: Source, unit: str) -> FileState | None:
    """None for what cannot be looked at (a broken symlink): its batch is announced, and says why it fails."""
    try:
        return source.state(unit)
    except DataError:
        return None
