"""Fingerprints of samples: keyed marks and digests by which their bytes are found again, and from which they cannot be read.

A representation of a sample is cut into pieces of at most 4,096 bytes. Of a piece, the file holds its length, the place of one
window of 16 bytes (``anchors``), the 32 bits of that window's keyed mark, and a keyed digest of the whole piece. The windows of a
piece do not overlap with others, so marks tell 32 bits of a piece at most. The key is the request's random salt, which stands in
the same file. The file is therefore closed to other accounts: who has it can test a guess, for that is what a scan does.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fastpath.arrays.windows import Key
from fastpath.format.skeleton import ARROW_ERRORS
from modyn_dagster.errors import CorruptFile, StorageError, one_line
from modyn_dagster.pipeline.operate.deletion.report.anchors import Anchors
from modyn_dagster.pipeline.operate.deletion.report.representations import KINDS, Kind
from modyn_dagster.storage import atomic_write

#: Longest piece in bytes.
LONGEST: Final = 4096
_DIGEST: Final = 16
_ROWS: Final = 8192
_FORMAT: Final = "modyn-dagster fingerprints 1"
SUFFIX: Final = ".fingerprints"
_NAME: Final = re.compile(rf"\d{{1,19}}-[0-9a-f]{{8}}{re.escape(SUFFIX)}")
_SCHEMA: Final = pa.schema(
    [
        ("sample", pa.uint32()),
        ("kind", pa.uint8()),
        ("length", pa.uint16()),
        ("at", pa.uint16()),
        ("mark", pa.uint32()),
        ("digest", pa.binary(_DIGEST)),
    ]
)

Digest = bytes


def fingerprints_path(home: Path, request: int, salt: str) -> Path:
    """Path of the fingerprints of a request. The salt tells requests apart that have one number in two catalogs of one home."""
    return named_fingerprints(home, f"{request}-{hashlib.sha256(bytes.fromhex(salt)).hexdigest()[:8]}{SUFFIX}")


def named_fingerprints(home: Path, name: str) -> Path:
    """Path of fingerprints by the name that a report has of them. Raises ``StorageError`` for a name of another form."""
    if not _NAME.fullmatch(name):
        raise StorageError(f"{name!r}: must be the name of a file of fingerprints, such as 3-0123abcd{SUFFIX}")
    return home / "deletions" / name


@dataclass(frozen=True, slots=True)
class Hashing:
    """Keyed hashes of one file of fingerprints."""

    salt: bytes

    @property
    def marks(self) -> Key:
        """Key of the marks of windows, ``uint64[3]``, whose factors are odd."""
        numbers = np.frombuffer(hashlib.blake2b(self.salt, digest_size=24, person=b"window marks").digest(), "<u8").copy()
        numbers[1:] |= np.uint64(1)
        return numbers

    def digest(self, piece: bytes) -> Digest:
        """Digest of a piece, 16 bytes."""
        return hashlib.blake2b(piece, digest_size=_DIGEST, key=self.salt, person=b"piece").digest()


@dataclass(frozen=True)
class Fingerprints:
    """Fingerprints of the samples of a request.

    Attributes:
        hashing: keyed hashes.
        keys: of the samples, ``uint64[n]``, ascending.
        pieces: a row per piece, with the fields of the file.
        not_provable: number of representations by kind that are too short, or too regular, to be told from others.
        unread: samples whose bytes were gone, or could not be read, before fingerprints were taken, by reason.
    """

    hashing: Hashing
    keys: npt.NDArray[np.uint64]
    pieces: pa.Table
    not_provable: Mapping[str, int]
    unread: Mapping[str, int]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file of fingerprints. Raises ``StorageError`` without one, and ``CorruptFile`` for a damaged one."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise StorageError(
                f"{path}: the fingerprints of the deleted samples cannot be read ({error.strerror}); without a backup of "
                "this file, nothing can be searched for their bytes"
            ) from error
        body, digest = content[:-_DIGEST], content[-_DIGEST:]
        if hashlib.blake2b(body, digest_size=_DIGEST).digest() != digest:
            raise CorruptFile(path, "fingerprints with their checksum at the end", "other bytes")
        try:
            with pa.ipc.open_stream(pa.py_buffer(body)) as stream:
                table = stream.read_all()
        except ARROW_ERRORS as error:
            raise CorruptFile(path, _FORMAT, one_line(error)) from error
        facts: dict[str, Any] = {name.decode(): value for name, value in (table.schema.metadata or {}).items()}
        if facts.get("format") != _FORMAT.encode():
            raise CorruptFile(path, _FORMAT, "another format")
        return cls(
            Hashing(facts["salt"]),
            np.frombuffer(facts["keys"], "<u8"),
            table.replace_schema_metadata(None),
            _counts(facts["not_provable"]),
            _counts(facts["unread"]),
        )


@dataclass
class FingerprintWriter:
    """Collects the fingerprints of the samples of a request, and writes them once.

    In memory are about 250 bytes of each piece: the windows among which its anchor is chosen once all pieces are known.
    """

    keys: npt.NDArray[np.uint64]
    hashing: Hashing

    def __post_init__(self) -> None:
        self._anchors = Anchors(self.hashing.marks)
        self._batches: list[list[pa.Array]] = []
        self._rows: list[tuple[int, int, int, Digest]] = []
        self.not_provable = dict.fromkeys(KINDS, 0)
        self.unread: dict[str, int] = {}

    def add(self, sample: int, kind: Kind, content: bytes) -> None:
        """Add a representation of a sample; ``sample`` is its position among the keys."""
        n_pieces = 0
        for piece in _pieces(content):
            if self._anchors.add(piece):
                self._rows.append((sample, KINDS.index(kind), len(piece), self.hashing.digest(piece)))
                n_pieces += 1
        self.not_provable[kind] += n_pieces == 0
        if len(self._rows) >= _ROWS:
            self._flush()

    def write(self, path: Path) -> None:
        """Write the file, closed to other accounts. Raises ``WriteFailed``."""
        self._flush()
        facts = {"format": _FORMAT, "salt": self.hashing.salt, "keys": self.keys.astype("<u8").tobytes()}
        facts |= {"not_provable": _text(self.not_provable), "unread": _text(self.unread)}
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_stream(buffer, _SCHEMA.with_metadata(facts)) as stream:
            for (samples, kinds, lengths, digests), (places, marks) in zip(self._batches, self._anchors.chosen(), strict=True):
                columns = [samples, kinds, lengths, pa.array(places), pa.array(marks), digests]
                stream.write_batch(pa.record_batch(columns, schema=_SCHEMA))
        body = buffer.getvalue()
        with atomic_write(path, 0o600) as file:
            file.write(body)
            file.write(hashlib.blake2b(body, digest_size=_DIGEST).digest())
        path.chmod(0o600)

    def _flush(self) -> None:
        if self._rows:
            columns, names = zip(*self._rows, strict=True), ("sample", "kind", "length", "digest")
            self._batches.append(
                [pa.array(values, _SCHEMA.field(name).type) for values, name in zip(columns, names, strict=True)]
            )
            self._anchors.end_batch()
            self._rows = []


def _pieces(content: bytes) -> Iterator[bytes]:
    """Cut a representation into pieces of equal length, but for the last, none shorter than half of the longest."""
    n = max(1, round(len(content) / LONGEST)) if len(content) > LONGEST else 1
    n += -(-len(content) // n) > LONGEST
    size = -(-len(content) // n)
    yield from (content[start : start + size] for start in range(0, len(content), size or 1))


def _text(counts: Mapping[Any, int]) -> str:
    return "\n".join(f"{n} {name}" for name, n in counts.items())


def _counts(text: bytes) -> dict[str, int]:
    pairs = (line.partition(" ") for line in text.decode().splitlines())
    return {name: int(n) for n, _, name in pairs if int(n)}
