"""Folder behind fsspec: S3, GCS, Azure, SFTP, memory, …, none of which has locks.

A file is written to a local disk first and uploaded as a whole. Savers and removers leave reservations, and see each other's
where a listing shows everything put before it (as S3, GCS and Azure promise).
"""

import io
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import PurePath
from typing import Any, BinaryIO, Final, cast

from modyn_dagster.errors import WriteFailed
from modyn_dagster.files.objects import Objects, is_older
from modyn_dagster.model_store.backends.reservations import FOLDERS, Reservations
from modyn_dagster.model_store.format.hash_tree import ModelId

#: Function that reads the bytes between two offsets.
Read = Callable[[int, int], bytes]

# Bytes fetched at least: all of a small model, and most headers.
_BUFFER: Final = 64 << 10


class _Ranges(io.RawIOBase):
    def __init__(self, read: Read, size: int) -> None:
        super().__init__()
        self._read, self._size, self._place = read, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence])
        return self._place

    def readinto(self, buffer: Any) -> int:
        end = min(self._place + len(buffer), self._size)
        if end <= self._place:
            return 0
        found = self._read(self._place, end)
        buffer[: len(found)] = found
        self._place += len(found)
        return len(found)


def open_ranges(read: Read, size: int) -> BinaryIO:
    """File of ``size`` bytes, read by ``read(start, end)``."""
    return cast("BinaryIO", io.BufferedReader(_Ranges(read, size), _BUFFER))


# Files that a killed writer or remover leaves behind; unrelated files may lie below the same URL.
_RESERVATIONS: Final = "|".join(FOLDERS)
_LEFTOVER: Final = re.compile(
    rf"((documents/)?[0-9a-f]{{2}}|tensors|{_RESERVATIONS})/\.[^/]*\.tmp|({_RESERVATIONS})/[0-9a-f]{{64}}(\.[0-9a-f]+)?"
)


class RemoteFolder(Objects):
    """Folder below a URL. Options go to fsspec and nowhere else: they may hold keys."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        super().__init__(url, options, ("model store", "root"))
        self.reservations = Reservations(self)

    def files(self, below: str = "") -> list[PurePath]:
        """All files, or those below a folder; never any that is not below the root."""
        return list(self.listing(below))

    def open(self, path: PurePath) -> BinaryIO:
        """File that fetches only the ranges that are read."""
        return open_ranges(lambda start, end: self.read(path, start, end), int(self.info(path)["size"]))

    def descriptor(self, path: PurePath) -> int:
        """Descriptor of an unnamed copy on the local disk."""
        size = int(self.info(path)["size"])
        with tempfile.TemporaryFile() as file:
            for piece in self.pieces(path, size):
                file.write(piece)
            file.flush()
            return os.dup(file.fileno())

    @contextmanager
    def writing(self, path: PurePath) -> Iterator[BinaryIO]:
        """Write to the local disk, then upload as a whole."""
        with tempfile.NamedTemporaryFile() as file:
            try:
                yield cast("BinaryIO", file.file)
                file.flush()
            except OSError as error:
                raise WriteFailed(file.name, error.strerror or str(error)) from error
            self.put_file(file.name, self.full_name(path), path)

    def shared_lock(self) -> nullcontext[None]:
        """No lock: removers leave reservations."""
        return nullcontext()

    @contextmanager
    def removal(self, *models: ModelId) -> Iterator[None]:
        """Reservations for the removal of models."""
        with ExitStack() as reservations:
            for model in models:
                reservations.enter_context(self.reservations.removal(model))
            yield

    def commit_lock(self, path: PurePath) -> nullcontext[None]:
        """No lock."""
        return nullcontext()

    def settle(self, path: PurePath) -> None:
        """Do nothing: every change of an object is durable."""

    def leftovers(self, older_than: float) -> list[PurePath]:
        """Temporary files and reservations of the store, older than that; none where the file system reports no times."""
        files = self.listing().items()
        named = [(path, info) for path, info in files if _LEFTOVER.fullmatch("/".join(path.relative_to(self.root).parts))]
        return [path for path, info in named if is_older(info, older_than)]

    def removable(self, path: PurePath, older_than: float) -> bool:
        """True if the file system reports a last change so long ago."""
        return is_older(self.info(path), older_than)
