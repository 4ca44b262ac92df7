"""Folder behind fsspec: S3, GCS, Azure, SFTP, memory, …, none of which has locks.

A file is written to a local disk first and uploaded as a whole: directly where the file system never shows partial objects, else
under a temporary name that is then changed. Savers and removers leave reservations, and see each other's where a listing shows
everything put before it (as S3, GCS and Azure promise).
"""

import io
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import datetime
from pathlib import PurePath, PurePosixPath
from typing import Any, BinaryIO, Final, cast

import fsspec

from modyn_dagster.errors import ConfigError, StorageError, WriteFailed, without_secrets
from modyn_dagster.model_store.backends.reservations import FOLDERS, Reservations
from modyn_dagster.model_store.format.hash_tree import ModelId


class Address(PurePosixPath):
    """URL ``scheme://host/folder/file`` with the operations of a path.

    >>> str(Address("memory:", "models") / "ab")
    'memory://models/ab'
    """

    def __str__(self) -> str:
        """URL with its two slashes, which a path would collapse into one."""
        return re.sub(r":/(?=[^/])", "://", super().__str__())


# Names that file systems use for the time of the last change.
_TIMES: Final = ("LastModified", "last_modified", "mtime", "updated", "modified", "created")


def is_older(info: Mapping[str, Any], seconds: float) -> bool:
    """True if a file was last changed so many seconds ago; False where its file system reports no time."""
    changed = next((info[name] for name in _TIMES if info.get(name) is not None), None)
    if isinstance(changed, str):
        with suppress(ValueError):
            changed = datetime.fromisoformat(changed)
    if isinstance(changed, datetime):
        changed = changed.timestamp()
    return isinstance(changed, int | float) and time.time() - changed >= seconds


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


# Protocols whose objects appear only when they are complete.
_ATOMIC: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "ocilake", "oss"})
_PIECE: Final = 32 << 20
# Files that a killed writer or remover leaves behind; unrelated files may lie below the same URL.
_RESERVATIONS: Final = "|".join(FOLDERS)
_LEFTOVER: Final = re.compile(
    rf"((documents/)?[0-9a-f]{{2}}|tensors|{_RESERVATIONS})/\.[^/]*\.tmp|({_RESERVATIONS})/[0-9a-f]{{64}}(\.[0-9a-f]+)?"
)


class RemoteFolder:
    """Folder below a URL. Options go to fsspec and nowhere else: they may hold keys."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._secrets = tuple(text for text in _texts_in(options) if len(text) > 3)
        shown = without_secrets(url, self._secrets)
        try:
            self.filesystem, base = fsspec.core.url_to_fs(url, **options)
        except (ValueError, ImportError) as error:
            raise ConfigError("model store", "root", shown, f"fsspec cannot open it: {self._safe_text(error)}") from None
        if ".." in base.split("/"):
            raise ConfigError("model store", "root", shown, "must not have .. in it")
        self._base = base.rstrip("/")
        protocols = self.filesystem.protocol
        self.is_atomic = not _ATOMIC.isdisjoint([protocols] if isinstance(protocols, str) else protocols)
        scheme, _, rest = shown.partition("://")
        self.root = Address(f"{scheme}:", rest.strip("/"))
        self.reservations = Reservations(self)

    def files(self, below: str = "") -> list[PurePath]:
        """All files, or those below a folder; never any that is not below the root."""
        return list(self._listing(below))

    def size(self, path: PurePath) -> int | None:
        """Bytes of a file; None for a missing file."""
        try:
            return self._size(path)
        except FileNotFoundError:
            return None

    def open(self, path: PurePath) -> BinaryIO:
        """File that fetches only the ranges that are read."""
        return open_ranges(lambda start, end: self._read(path, start, end), self._size(path))

    def descriptor(self, path: PurePath) -> int:
        """Descriptor of an unnamed copy on the local disk."""
        size = self._size(path)
        with tempfile.TemporaryFile() as file:
            for start in range(0, size, _PIECE):
                file.write(self._read(path, start, min(start + _PIECE, size)))
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
            self.put_file(file.name, self._full(path), path)

    def remove(self, path: PurePath) -> None:
        """Remove a file, if it exists."""
        with suppress(FileNotFoundError), self._reading(path):
            self.filesystem.rm_file(self._full(path))

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
        files = self._listing("").items()
        named = [(path, info) for path, info in files if _LEFTOVER.fullmatch("/".join(path.relative_to(self.root).parts))]
        return [path for path, info in named if is_older(info, older_than)]

    def removable(self, path: PurePath, older_than: float) -> bool:
        """True if the file system reports a last change so long ago."""
        with self._reading(path):
            self.filesystem.invalidate_cache()
            return is_older(self.filesystem.info(self._full(path)), older_than)

    def _listing(self, below: str) -> dict[PurePath, Mapping[str, Any]]:
        place = f"{self._base}/{below}" if below else self._base
        with self._reading(self.root / below):
            self.filesystem.invalidate_cache()
            try:
                found = self.filesystem.find(place, detail=True)
            except FileNotFoundError as error:
                # A folder without files is no error to a file system; a missing bucket or host is.
                raise StorageError(f"{self.root}: {self._safe_text(error)}") from None
            if not found:
                # Without a connection or permission most file systems find nothing; listing raises the reason.
                with suppress(FileNotFoundError):
                    self.filesystem.ls(place)
        inside = {name.removeprefix(f"{self._base}/"): info for name, info in found.items() if name.startswith(f"{self._base}/")}
        return {self.root / name: info for name, info in inside.items() if ".." not in name.split("/")}

    def _size(self, path: PurePath) -> int:
        with self._reading(path):
            # The cached listing may be stale: others change and remove files.
            self.filesystem.invalidate_cache()
            info = self.filesystem.info(self._full(path))
            if info["type"] != "file":
                raise FileNotFoundError
            return int(info["size"])

    def _read(self, path: PurePath, start: int, end: int) -> bytes:
        with self._reading(path):
            return bytes(self.filesystem.cat_file(self._full(path), start=start, end=end))

    def put_file(self, local: str, full: str, path: PurePath) -> None:
        """Upload a local file under its full name; through a temporary name where a put is not atomic."""
        parent, _, name = full.rpartition("/")
        temporary = full if self.is_atomic else f"{parent}/.{name}.{secrets.token_hex(4)}.tmp"
        try:
            self.filesystem.put_file(local, temporary)
            if temporary != full:
                self.filesystem.mv(temporary, full)
        except Exception as error:  # noqa: BLE001 - libraries have errors of their own; all become one of ours
            if temporary != full:
                with suppress(Exception):
                    self.filesystem.rm_file(temporary)
            raise WriteFailed(str(path), self._safe_text(error)) from None
        self.filesystem.invalidate_cache(parent)

    def _full(self, path: PurePath) -> str:
        return f"{self._base}/{path.relative_to(self.root)}"

    @contextmanager
    def _reading(self, path: PurePath) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(str(path)) from None
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            # Not chained: the texts of the library may show a key.
            raise StorageError(f"{path}: {self._safe_text(error)}") from None

    def _safe_text(self, error: Exception) -> str:
        text = getattr(error, "strerror", None) or str(error)
        return f"{type(error).__name__}: {without_secrets(text, self._secrets)}"


def _texts_in(options: object) -> Iterator[str]:
    """All texts, also of options within options."""
    if isinstance(options, str):
        yield options
    elif isinstance(options, Mapping):
        yield from _texts_in(tuple(options.values()))
    elif isinstance(options, Sequence) and not isinstance(options, bytes):
        for option in options:
            yield from _texts_in(option)
