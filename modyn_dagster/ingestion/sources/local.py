"""Files of a dataset in a local folder."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Final

import numpy as np

from modyn_dagster.errors import DataError, StorageError
from modyn_dagster.ingestion.sources.files import (
    PERMANENT_ERRORS,
    FileState,
    FileVersion,
    LoadedFile,
    path_as_text,
    permanent_errors,
    regular_state,
    require_stable,
    require_text,
    version_of,
)
from modyn_dagster.storage import inside

#: Last parts of a path that are no file names.
_NO_NAMES: Final = ("", ".", "..")


class LocalSource:
    """A local folder.

    Args:
        root: of the dataset.
    """

    in_place = True

    def __init__(self, root: Path) -> None:
        self.root = root
        # Real paths of folders below the root, by relative path, so that each is resolved once and not once per file.
        self._folders: dict[str, str] = {}

    def files(self, pattern: str) -> list[str]:
        """Matches of a glob except folders. A broken symlink counts, so that its batch can report it.

        Raises ``StorageError`` for a missing root, which must not look like an empty dataset.
        """
        if not self.root.is_dir():
            raise StorageError(f"{self.root}: the root of the dataset is not a folder; create it, mount it, or correct `root`")
        found = [path.relative_to(self.root).as_posix() for path in self.root.glob(pattern) if not path.is_dir()]
        return [path_as_text(path) for path in found]

    def folder(self, path: str) -> list[str]:
        """All files below a folder, without following symlinks to folders."""
        top = str(self.locate(path))
        with permanent_errors(path):
            return [
                path_as_text(f"{path}{folder.removeprefix(top)}/{name}")
                for folder, _, names in os.walk(top, onerror=_raise)
                for name in names
            ]

    def state(self, path: str) -> FileState:
        """Size and mtime of a regular file. Raises ``DataError`` for anything else."""
        return self._locate_with_state(path)[1]

    @contextmanager
    def opened(self, path: str) -> Iterator[tuple[FileIO, FileState]]:
        """Open a file; yields it with its state. Raises ``DataError`` if the state is another after the block."""
        with permanent_errors(path):
            # The state comes first: opening a pipe would wait for its writer.
            real, state = self._locate_with_state(path)
            with FileIO(real) as file:
                yield file, state
            require_stable(path, self._locate_with_state(path)[1] == state)

    def load(self, path: str) -> LoadedFile:
        """All bytes. They are read, not mapped: truncating a mapped file would crash the process."""
        with self.opened(path) as (file, state):
            data = np.empty(state.size, dtype=np.uint8)
            done = 0
            while read := file.readinto(data[done:].data):  # the system reads at most 2 GiB at a time
                done += read
            require_stable(path, done == state.size)
        return LoadedFile(path, data, state)

    def version(self, path: str) -> FileVersion:
        """State and checksum, read in chunks."""
        with self.opened(path) as (file, state):
            version, size = version_of(file, state)
            require_stable(path, size == state.size)
        return version

    def locate(self, path: str) -> Path:
        """Absolute path of a file. Raises ``DataError`` when the path, or a symlink in it, leaves the root."""
        require_text(path)
        try:
            return inside(self.root, path)
        except StorageError:
            raise DataError(path, "lies outside the dataset's root, or is a symlink that leaves it") from None
        except RuntimeError as error:  # raised by pathlib for a loop of symlinks
            raise DataError(path, PERMANENT_ERRORS[errno.ELOOP]) from error
        except ValueError as error:  # a null byte
            raise DataError(path, f"is not a path: {error}") from error

    def _locate_with_state(self, path: str) -> tuple[str, FileState]:
        """Real path and state of a file."""
        require_text(path)
        folder, slash, name = path.rpartition("/")
        # Fast path for a plain name in a folder below the root. Everything else, errors included, is left to ``locate``.
        if name not in _NO_NAMES and (folder or not slash):
            with suppress(OSError, ValueError, DataError):
                real = f"{self._real_folder(folder)}/{name}"
                status = os.lstat(real)
                if not stat.S_ISLNK(status.st_mode):
                    return real, regular_state(path, status)
        with permanent_errors(path):
            located = self.locate(path)
            return str(located), regular_state(path, located.stat())

    def _real_folder(self, folder: str) -> str:
        if folder not in self._folders:
            self._folders[folder] = str(self.locate(folder))
        return self._folders[folder]


def _raise(error: OSError) -> None:
    raise error
