"""Operations on files of state, wherever they are stored."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol


class StoredFile(NamedTuple):
    """A stored file.

    Attributes:
        path: path below the home of files.
        n_bytes: its size.
        modified: seconds since 1970 of its last change; None where the store reports no time.
    """

    path: Path
    n_bytes: int
    modified: float | None


class Files(Protocol):
    """Files of state by their paths below a home. A file appears complete and durable, or not at all.

    Methods raise ``StorageError`` for a store that does not answer, and for a path outside the home; those that write raise
    ``WriteFailed``.
    """

    def stage(self, temporary: Path) -> None:
        """Bring a durable file with a temporary name to where it will be stored, so that ``publish`` takes little time."""

    def publish(self, temporary: Path, path: Path, *, staged: bool = False) -> None:
        """Give a durable file with a temporary name its final one, for good."""

    def discard(self, temporary: Path) -> None:
        """Remove what ``stage`` brought."""

    def link(self, existing: Path, path: Path, *, replace: bool = False) -> None:
        """Store a file a second time; removing either leaves the other.

        Without ``replace`` callers see to it that the other name is free or has the same bytes: a folder refuses another file
        there (``FileExistsError``), a store replaces it. Raises ``OSError``, as ``FileNotFoundError`` for a missing file.
        """

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists."""

    def remove_below(self, folder: Path) -> None:
        """Remove a file, or everything below a folder, for good."""

    def settle(self, folder: Path) -> None:
        """Let removals in a folder survive a power cut."""

    def exists(self, path: Path) -> bool:
        """True if there is a file, or a folder with files."""

    def size(self, path: Path) -> int | None:
        """Bytes of a stored file; None for a missing one."""

    def sizes(self, paths: Iterable[Path]) -> Mapping[Path, int]:
        """Bytes of those files that are stored; in fewer requests than one per file."""

    def below(self, folder: Path) -> list[StoredFile]:
        """Files below a folder, at any depth, hidden ones too."""

    def names(self, folder: Path) -> list[Path]:
        """Paths of the files in a folder, hidden ones too; none where there is no such folder."""

    def unfinished(self, folder: Path) -> list[StoredFile]:
        """Files with temporary names below a folder."""

    def read(self, path: Path, checksum: str) -> bytes:
        """Content of a small file with this checksum (hex BLAKE2b, 16 bytes). Raises ``CorruptFile``."""

    def using(self, path: Path, checksum: str | None = None) -> AbstractContextManager[Path]:
        """Hold a file until the block ends, and say where to read it. The reader compares it with its checksum, if it has one.

        At its own path another process may remove it, or put a newer one, at any time. Raises ``CorruptFile`` for a file that
        is not stored, or not with this checksum, where it has to be fetched.
        """

    def verified(self, path: Path, checksum: str) -> AbstractContextManager[Path]:
        """Hold a file with this checksum (hex BLAKE2b, 16 bytes), and say where to read it, or raise ``CorruptFile``."""

    def renewed(self, path: Path) -> bool:
        """Let the next read of a file that other nodes replace be of the newest one; False for a missing file."""

    def open_stored(self, path: Path) -> Any:
        """Open the stored bytes themselves, past any copy, for ``read(n)`` in a ``with`` block. Raises ``OSError``."""
