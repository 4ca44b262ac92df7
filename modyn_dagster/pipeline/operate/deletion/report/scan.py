"""Scan for the bytes of deleted samples: every file that held or could hold them, and the tables of our databases."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.errors import CatalogError, DatabaseDown, StorageError, one_line
from modyn_dagster.pipeline.operate.deletion.report.fingerprints import Fingerprints
from modyn_dagster.pipeline.operate.deletion.report.held_files import BATCHES, ORIGINALS, held_files, not_searched
from modyn_dagster.pipeline.operate.deletion.report.living import LivingSamples
from modyn_dagster.pipeline.operate.deletion.report.representations import KINDS
from modyn_dagster.pipeline.operate.deletion.report.search import PieceSearch
from modyn_dagster.pipeline.operate.deletion.report.walking import HeldFile
from modyn_dagster.pipeline.platform import Platform

#: ``found``: bytes of deleted samples. ``original``: the same, outside of the home. ``shared``: samples that stay have them too.
State = Literal["found", "original", "shared"]
#: Called with the bytes searched so far and in total.
Progress = Callable[[int, int], None]

#: Formats that hide bytes from a search, by their first bytes.
_ENCODED: Final[Mapping[bytes, str]] = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x89PNG": "png",
    b"PAR1": "parquet",
    b"%PDF": "pdf",
}
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """Bytes of deleted samples in a file.

    Attributes:
        state: see ``State``.
        n_samples, n_places: samples whose bytes were found, and places in the file.
        forms: representations that were found.
        offsets: of the first places.
    """

    state: State
    kind: str
    path: str
    n_samples: int
    n_places: int
    forms: Sequence[str]
    offsets: Sequence[int]


@dataclass
class Scan:
    """Result of a scan.

    Attributes:
        n_files, n_bytes: searched, by kind of file.
        findings: in the order of the search.
        unread: files and folders that could not be read, with the reason.
        encoded: number of files by format in which bytes are compressed, so that a search does not see them.
        elsewhere: stores and roots that are not searched.
    """

    at: datetime
    seconds: float = 0.0
    n_files: Counter[str] = field(default_factory=Counter)
    n_bytes: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    unread: list[tuple[str, str]] = field(default_factory=list)
    encoded: Counter[str] = field(default_factory=Counter)
    elsewhere: Sequence[str] = ()

    def found(self, state: State) -> list[Finding]:
        """Findings of one state."""
        return [finding for finding in self.findings if finding.state == state]

    def to_json(self) -> dict[str, Any]:
        """Fields for the report."""
        return {
            "at": self.at.isoformat(timespec="seconds"),
            "seconds": round(self.seconds, 3),
            "files": [{"kind": kind, "files": n, "bytes": self.n_bytes[kind]} for kind, n in sorted(self.n_files.items())],
            "findings": [
                {name: getattr(finding, name) for name in ("state", "kind", "path", "n_samples", "n_places")}
                | {"forms": list(finding.forms), "offsets": list(finding.offsets)}
                for finding in self.findings
            ],
            "unread": [{"path": path, "reason": reason} for path, reason in self.unread],
            "encoded": dict(sorted(self.encoded.items())),
            "elsewhere": list(self.elsewhere),
        }


def unseen(done: int, total: int) -> None:
    """Show no progress."""


def scan(platform: Platform, dataset: DatasetRow, fingerprints: Fingerprints, progress: Progress = unseen) -> Scan:
    """Search for the pieces of deleted samples. Batches and originals come first: they tell which bytes samples that stay share.

    A file or table that cannot be read is noted, and the scan goes on. Memory is bounded by the fingerprints and one chunk of
    256 KiB. Raises ``DatabaseDown``, and ``CorruptFile`` for a damaged index of a batch that has a finding.
    """
    begin = time.monotonic()
    held = held_files(platform, dataset.name)
    result = Scan(datetime.now(UTC), unread=list(held.unread), elsewhere=not_searched(platform, dataset.name))
    searcher = _Searcher(fingerprints, LivingSamples(platform, dataset))
    total, done = sum(file.n_bytes for file in held.files), 0

    def took(n_bytes: int) -> None:
        nonlocal done
        done += n_bytes
        progress(done, max(total, done))

    for file in held.files:
        _search(searcher, file, result, took)
    result.findings += searcher.findings()
    result.seconds = time.monotonic() - begin
    return result


def _search(searcher: "_Searcher", file: HeldFile, result: Scan, took: Callable[[int], None]) -> None:
    def read(n_bytes: int) -> None:
        result.n_bytes[file.kind] += n_bytes
        took(n_bytes)

    try:
        with file.open() as stream:
            first = _Beginning(stream)
            searcher.search(file, first, read)
        result.n_files[file.kind] += 1
        if (encoded := next((name for magic, name in _ENCODED.items() if first.bytes.startswith(magic)), None)) is not None:
            result.encoded[encoded] += 1
    except FileNotFoundError:  # removed since it was listed
        pass
    except DatabaseDown:
        raise
    except (OSError, StorageError, CatalogError) as error:
        result.unread.append((file.shown, one_line(error)))


class _Beginning:
    """A file whose first bytes are kept."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.bytes = stream, b""

    def read(self, n_bytes: int) -> bytes:
        chunk = bytes(self._stream.read(n_bytes))
        self.bytes = self.bytes or chunk[:8]
        return chunk


class _Searcher:
    """Matches by file, and the pieces that samples which stay have, too."""

    def __init__(self, fingerprints: Fingerprints, living: LivingSamples) -> None:
        self._search, self._living = PieceSearch(fingerprints), living
        self._samples = fingerprints.pieces["sample"].to_pylist()
        self._kinds = fingerprints.pieces["kind"].to_pylist()
        self._digests = fingerprints.pieces["digest"].to_pylist()
        self._shared: set[bytes] = set()
        self._found: dict[tuple[str, str], Counter[int]] = {}
        self._offsets: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)

    def search(self, file: HeldFile, stream: Any, read: Callable[[int], None]) -> None:
        """Search a file."""
        counts: Counter[int] = Counter()
        place = file.kind, file.shown
        for match in self._search.find(stream, read):
            if file.kind in BATCHES and self._living.hold(file.path, match.start, match.length):
                self._shared.add(self._digests[match.piece])
            else:
                counts[match.piece] += 1
                self._offsets[place].setdefault(match.piece, match.start)
        if counts:
            self._found[place] = counts

    def findings(self) -> Iterable[Finding]:
        """Findings of all files: one for bytes of deleted samples alone, one for those that others share."""
        for (kind, path), counts in self._found.items():
            own = {piece: n for piece, n in counts.items() if self._digests[piece] not in self._shared}
            shared = {piece: n for piece, n in counts.items() if piece not in own}
            for state, pieces in (("original" if kind == ORIGINALS else "found", own), ("shared", shared)):
                if pieces:
                    yield self._finding(state, kind, path, pieces)  # type: ignore[arg-type]  # mypy takes the words for any text

    def _finding(self, state: State, kind: str, path: str, pieces: Mapping[int, int]) -> Finding:
        offsets = sorted(self._offsets[kind, path][piece] for piece in pieces)[:_SHOWN]
        forms = sorted({KINDS[self._kinds[piece]] for piece in pieces})
        samples = {self._samples[piece] for piece in pieces}
        return Finding(state, kind, path, len(samples), sum(pieces.values()), forms, offsets)
