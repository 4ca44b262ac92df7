"""A dataset's files in a folder of this machine."""

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
    digest_of,
    permanent_errors,
    regular_state,
    require_stable,
)
from modyn_dagster.storage import inside

#: Ends of a path that do not name something in the folder before them.
_NO_NAMES: Final = ("", ".", "..")


class LocalSource:
    """A folder of this machine."""

    in_place = True

    def __init__(self, root: Path) -> None:
        self.root = root
        # Real paths of folders that lie below the root, by their relative path: asked once, not for each of their files.
        self._folders: dict[str, str] = {}

    def files(self, pattern: str) -> list[str]:
        """What a glob finds except folders; a broken symlink is found, so that its batch can say so.

        Raises ``StorageError`` when the root is not there: an empty dataset and a missing disk must not look the same.
        """
        if not self.root.is_dir():
            raise StorageError(f"{self.root}: the root of the dataset is no folder; create it, mount it, or correct `root`")
        return [path.relative_to(self.root).as_posix() for path in self.root.glob(pattern) if not path.is_dir()]

    def folder(self, path: str) -> list[str]:
        """All files below a folder; symlinks to folders are not followed."""
        top = str(self.locate(path))
        with permanent_errors(path):
            return [
                f"{path}{folder.removeprefix(top)}/{name}" for folder, _, names in os.walk(top, onerror=_raise) for name in names
            ]

    def state(self, path: str) -> FileState:
        """Size and mtime; only a regular file has them."""
        return self._look(path)[1]

    def load(self, path: str) -> LoadedFile:
        """All bytes, read and not mapped: a file cut short while it is read is an error, not a fault."""
        with self._opened(path) as (file, state):
            data = np.empty(state.size, dtype=np.uint8)
            done = 0
            while read := file.readinto(data[done:].data):  # the system reads at most 2 GiB at a time
                done += read
            require_stable(path, done == state.size)
        return LoadedFile(path, data, state)

    def version(self, path: str) -> FileVersion:
        """State and checksum."""
        with self._opened(path) as (file, state):
            checksum, size = digest_of(file)
            require_stable(path, size == state.size)
        return FileVersion(state, checksum)

    def locate(self, path: str) -> Path:
        """The absolute path; refused when it, or a symlink on its way, leaves the root."""
        try:
            return inside(self.root, path)
        except StorageError:
            raise DataError(path, "lies outside the dataset's root, or is a symlink that leaves it") from None
        except RuntimeError as error:  # pathlib's word for a loop of symlinks
            raise DataError(path, PERMANENT_ERRORS[errno.ELOOP]) from error
        except ValueError as error:  # a null byte
            raise DataError(path, f"is not a path: {error}") from error

    @contextmanager
    def _opened(self, path: str) -> Iterator[tuple[FileIO, FileState]]:
        """A file and its state, which must be the same when it was read."""
        with permanent_errors(path):
            # Looked at before it is opened: to open a pipe would wait for its writer.
            real, state = self._look(path)
            with FileIO(real) as file:
                yield file, state
            require_stable(path, self._look(path)[1] == state)

    def _look(self, path: str) -> tuple[str, FileState]:
        """The real path and the state."""
        folder, slash, name = path.rpartition("/")
        # The short way is for a plain name in a folder below the root; all else, errors too, is left to ``locate``.
        if name not in _NO_NAMES and (folder or not slash):
            with suppress(OSError, ValueError, DataError):
                real = f"{self._real_folder(folder)}/{name}"
                found = os.lstat(real)
                if not stat.S_ISLNK(found.st_mode):
                    return real, regular_state(path, found)
        with permanent_errors(path):
            located = self.locate(path)
            return str(located), regular_state(path, located.stat())

    def _real_folder(self, folder: str) -> str:
        if folder not in self._folders:
            self._folders[folder] = str(self.locate(folder))
        return self._folders[folder]


def _raise(error: OSError) -> None:
    raise error
