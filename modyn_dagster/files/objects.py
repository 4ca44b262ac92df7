"""Objects below a URL, by fsspec: S3, GCS, Azure, SFTP, a shared folder, memory, …

A file is uploaded as a whole: directly where the file system never shows partial objects, else under a temporary name that is
then changed. Errors of libraries become errors of ours, without the keys that their texts may show.
"""

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Final

import fsspec
from fsspec.implementations.local import LocalFileSystem

from modyn_dagster.durability.names import sync_folder
from modyn_dagster.errors import ConfigError, StorageError, WriteFailed, without_secrets


class Address(PurePosixPath):
    """URL ``scheme://host/folder/file`` with the operations of a path.

    >>> str(Address("memory:", "models") / "ab"), str(Address("file:", "srv") / "ab")
    ('memory://models/ab', 'file:///srv/ab')
    """

    def __str__(self) -> str:
        """URL with its slashes, which a path would collapse into one; that of a file has no host."""
        return re.sub(r"^file:/(?=[^/])", "file:///", re.sub(r"(?<!^file):/(?=[^/])", "://", super().__str__()))


# Names that file systems use for the time of the last change.
_TIMES: Final = ("LastModified", "last_modified", "mtime", "updated", "modified", "created")


def changed_at(info: Mapping[str, Any]) -> float | None:
    """Seconds since 1970 of a file's last change; None where its file system reports no time."""
    changed = next((info[name] for name in _TIMES if info.get(name) is not None), None)
    if isinstance(changed, str):
        with suppress(ValueError):
            changed = datetime.fromisoformat(changed)
    if isinstance(changed, datetime):
        changed = changed.timestamp()
    return float(changed) if isinstance(changed, int | float) else None


def is_older(info: Mapping[str, Any], seconds: float) -> bool:
    """True if a file was last changed so many seconds ago; False where its file system reports no time."""
    changed = changed_at(info)
    return changed is not None and time.time() - changed >= seconds


# Protocols whose objects appear only when they are complete.
_ATOMIC: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "ocilake", "oss"})
#: Bytes of one request: enough for the throughput of a network, little for memory.
PIECE: Final = 32 << 20


class Objects:
    """Files below a URL. Options go to fsspec and nowhere else: they may hold keys.

    Args:
        url: of the folder.
        options: of fsspec.
        named_by: source and field that name the URL, for errors.

    Attributes:
        root: URL of the folder, without secrets; paths begin with it.
        is_atomic: whether the file system never shows a partial object.
    """

    def __init__(self, url: str, options: Mapping[str, Any], named_by: tuple[str, str]) -> None:
        self._secrets = tuple(text for text in _texts_in(options) if len(text) > 3)
        shown = without_secrets(url, self._secrets)
        try:
            self.filesystem, base = fsspec.core.url_to_fs(url, **options)
        except (ValueError, ImportError) as error:
            raise ConfigError(*named_by, shown, f"fsspec cannot open it: {self._safe_text(error)}") from None
        if ".." in base.split("/"):
            raise ConfigError(*named_by, shown, "must not have .. in it")
        self._base = base.rstrip("/")
        protocols = self.filesystem.protocol
        self.is_atomic = not _ATOMIC.isdisjoint([protocols] if isinstance(protocols, str) else protocols)
        scheme, _, rest = shown.partition("://")
        self.root = Address(f"{scheme}:", rest.strip("/"))

    def listing(self, below: str = "") -> dict[PurePath, Mapping[str, Any]]:
        """Facts about all files, or those below a folder; never about any that is not below the root."""
        place = f"{self._base}/{below}" if below else self._base
        with self.reading(self.root / below):
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

    def info(self, path: PurePath) -> Mapping[str, Any]:
        """Facts about a file as of now. ``FileNotFoundError`` for a missing file."""
        with self.reading(path):
            # The cached listing may be stale: others change and remove files.
            self.filesystem.invalidate_cache()
            info: Mapping[str, Any] = self.filesystem.info(self.full_name(path))
            if info["type"] != "file":
                raise FileNotFoundError
            return info

    def size(self, path: PurePath) -> int | None:
        """Bytes of a file; None for a missing file."""
        try:
            return int(self.info(path)["size"])
        except FileNotFoundError:
            return None

    def read(self, path: PurePath, start: int, end: int) -> bytes:
        """Read the bytes between two offsets. ``FileNotFoundError`` for a missing file."""
        with self.reading(path):
            return bytes(self.filesystem.cat_file(self.full_name(path), start=start, end=end))

    def pieces(self, path: PurePath, size: int) -> Iterator[bytes]:
        """Read a file of ``size`` bytes from its beginning to its end."""
        return (self.read(path, start, min(start + PIECE, size)) for start in range(0, size, PIECE))

    def put_file(self, local: str, full: str, path: PurePath) -> None:
        """Upload a local file under its full name; through a temporary name where a put is not atomic. ``WriteFailed``."""
        parent, _, name = full.rpartition("/")
        temporary = full if self.is_atomic else f"{parent}/.{name}.{secrets.token_hex(4)}.tmp"
        with self._writing(path, lambda: temporary != full and self.filesystem.rm_file(temporary)):
            if isinstance(self.filesystem, LocalFileSystem):
                self.filesystem.makedirs(parent, exist_ok=True)
            self.filesystem.put_file(local, temporary)
            self._sync(temporary)
            if temporary != full:
                self.filesystem.mv(temporary, full)
                self._sync_names(parent)
        self.filesystem.invalidate_cache(parent)

    def move(self, existing: PurePath, path: PurePath) -> None:
        """Give an uploaded file its final name, or replace the file that has it. Raises ``WriteFailed``."""
        full = self.full_name(path)
        with self._writing(path):
            self.filesystem.mv(self.full_name(existing), full)
            self._sync_names(full.rpartition("/")[0])
        self.filesystem.invalidate_cache()

    def copy(self, existing: PurePath, path: PurePath) -> None:
        """Store a file a second time, in the store. ``FileNotFoundError`` where it is missing, ``WriteFailed``."""
        self.info(existing)
        parent, _, name = self.full_name(path).rpartition("/")
        temporary = path if self.is_atomic else path.with_name(f".{name}.{secrets.token_hex(4)}.tmp")
        with self._writing(path):
            if isinstance(self.filesystem, LocalFileSystem):
                self.filesystem.makedirs(parent, exist_ok=True)
            self.filesystem.cp_file(self.full_name(existing), self.full_name(temporary))
            self._sync(self.full_name(temporary))
        if temporary != path:
            self.move(temporary, path)
        self.filesystem.invalidate_cache(parent)

    def remove(self, path: PurePath) -> None:
        """Remove a file, if it exists."""
        with suppress(FileNotFoundError), self.reading(path):
            self.filesystem.rm_file(self.full_name(path))

    def full_name(self, path: PurePath) -> str:
        """Name of a file for the file system."""
        return f"{self._base}/{path.relative_to(self.root)}"

    @contextmanager
    def reading(self, path: PurePath) -> Iterator[None]:
        """Raise ``FileNotFoundError`` for a missing file, ``StorageError`` for every other error of a library."""
        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(str(path)) from None
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001 - libraries have errors of their own; all become one of ours
            # Not chained: the texts of the library may show a key.
            raise StorageError(f"{path}: {self._safe_text(error)}") from None

    @contextmanager
    def _writing(self, path: PurePath, clean: Callable[[], object] = lambda: None) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - as above
            with suppress(Exception):
                clean()
            raise WriteFailed(str(path), self._safe_text(error)) from None

    def _sync(self, full: str) -> None:
        """Let the bytes of a file in a shared folder survive a power cut; object stores see to that themselves."""
        if isinstance(self.filesystem, LocalFileSystem):
            descriptor = os.open(full, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _sync_names(self, folder: str) -> None:
        if isinstance(self.filesystem, LocalFileSystem):
            sync_folder(Path(folder))

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
