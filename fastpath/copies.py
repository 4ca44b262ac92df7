"""Folders of copies: local files of what is stored elsewhere, fetched when they are first opened and removed when room is short.

A process that registers no such folder opens files as if this module did not exist.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar

from fastpath.errors import CorruptFile

T = TypeVar("T")


class Copies(Protocol):
    """Copies in one folder, shared by the processes of a machine."""

    def open(self, path: Path, checksum: str | None) -> int:
        """Descriptor of a copy, which is fetched first if it is missing.

        The copy stays as long as the descriptor, or a mapping of it, does. A checksum (hex BLAKE2b, 16 bytes) is compared when
        the file is fetched. Raises ``CorruptFile`` for a file that is stored with other bytes, or not at all.
        """

    def forget(self, path: Path) -> None:
        """Remove a copy that is damaged, or older than what is stored; the next ``open`` fetches the file again."""


_folders: Final[dict[str, Copies]] = {}


def register_copies(folder: Path, copies: Copies) -> None:
    """Let all files below a folder be opened through its copies, in this process and in those that it forks."""
    _folders[f"{folder}{os.sep}"] = copies


def copies_at(path: Path) -> Copies | None:
    """Copies that a path is one of; None for any other file."""
    if not _folders:
        return None
    text = os.fspath(path)
    return next((copies for folder, copies in _folders.items() if text.startswith(folder)), None)


def opened_again(path: Path, open_file: Callable[[], T]) -> T:
    """Open a file by a function; a copy that is not as expected is fetched again, and opened once more.

    Raises ``CorruptFile`` where the stored file is not as expected either.
    """
    try:
        return open_file()
    except CorruptFile:
        copies = copies_at(path)
        if copies is None:
            raise
        copies.forget(path)
    return open_file()
