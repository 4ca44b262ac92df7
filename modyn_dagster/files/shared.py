"""Files of state in an object store or a shared folder, with copies on each node.

An object is complete before the row that names it is committed; its copy on the node that wrote it is that file itself.
"""

import io
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath

from fastpath.copies import opened_again
from modyn_dagster.durability.names import final_name, write_errors
from modyn_dagster.errors import CorruptFile, WriteFailed
from modyn_dagster.files.interface import StoredFile
from modyn_dagster.files.node_cache import NodeCache
from modyn_dagster.files.objects import Objects, changed_at
from modyn_dagster.values.digest import bytes_digest, checksum_of


class SharedFiles:
    """Objects below a URL by the paths of their copies; see ``Files``.

    Args:
        url: of the store; fsspec finds keys in the environment.
        folder: of the copies on this node.
        limit: bytes of copies that are not in use, at most.

    Attributes:
        cache: copies of this node.
    """

    def __init__(self, url: str, folder: Path, limit: int) -> None:
        self._url = url
        self._opened: tuple[int, Objects] | None = None
        self.cache = NodeCache(folder, limit, self)

    @property
    def objects(self) -> Objects:
        """Connections of this process: those of a parent do not survive a fork."""
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), Objects(self._url, {}, ("environment", "MODYN_FILES"))
        return self._opened[1]

    def url_of(self, name: str) -> str:
        """URL of an object, without secrets."""
        return str(self.objects.root / name)

    def size_of(self, name: str) -> int | None:
        """Bytes of an object; None where there is none."""
        return self.objects.size(self.objects.root / name)

    def pieces_of(self, name: str, size: int) -> Iterator[bytes]:
        """Content of an object, piece by piece."""
        return self.objects.pieces(self.objects.root / name, size)

    def stage(self, temporary: Path) -> None:
        """Upload the file under its temporary name."""
        self._put(temporary, temporary)

    def publish(self, temporary: Path, path: Path, *, staged: bool = False) -> None:
        """Give the object its final name, and the file that of its copy."""
        with write_errors(path):
            # Swept by a writer who published before: the object of that one must stay.
            temporary.stat()
        if staged:
            self.objects.move(self._address(temporary), self._address(path))
        else:
            self._put(temporary, path)
        self.cache.adopt(temporary, path)

    def discard(self, temporary: Path) -> None:
        """Remove the object with the temporary name."""
        self.objects.remove(self._address(temporary))

    def link(self, existing: Path, path: Path, *, replace: bool = False) -> None:
        """Copy the object in the store, in place of what has the other name."""
        self.objects.copy(self._address(existing), self._address(path))
        self.cache.forget(path)

    def remove(self, path: Path) -> None:
        """Remove the object, then the copy of this node; those of others go when they need room."""
        self.objects.remove(self._address(path))
        self.cache.forget(path)

    def remove_below(self, folder: Path) -> None:
        """Remove one object, or all below a folder."""
        for file in self.below(folder):
            self.remove(file.path)
        if self.size(folder) is not None:
            self.remove(folder)

    def settle(self, folder: Path) -> None:
        """Do nothing: every change of an object is durable."""

    def exists(self, path: Path) -> bool:
        """True if there is an object with the name, or with one below it."""
        return self.size(path) is not None or bool(self.below(path))

    def size(self, path: Path) -> int | None:
        """Bytes of the object; None for a missing one."""
        return self.objects.size(self._address(path))

    def sizes(self, paths: Iterable[Path]) -> Mapping[Path, int]:
        """Bytes of those objects that exist, by one listing for each run or dataset."""
        paths, depth = list(paths), len(self.cache.root.parts) + 2
        folders = {Path(*path.parts[: min(depth, len(path.parts) - 1)]) for path in paths}
        listed = {file.path: file.n_bytes for folder in folders for file in self.below(folder)}
        return {path: listed[path] for path in paths if path in listed}

    def below(self, folder: Path) -> list[StoredFile]:
        """Objects below a folder."""
        root, name = self.objects.root, "" if folder == self.cache.root else self.cache.name_of(folder)
        return [
            StoredFile(self.cache.root / address.relative_to(root), int(info["size"]), changed_at(info))
            for address, info in self.objects.listing(name).items()
        ]

    def names(self, folder: Path) -> list[Path]:
        """Paths of the objects in the folder itself."""
        return [file.path for file in self.below(folder) if file.path.parent == folder]

    def unfinished(self, folder: Path) -> list[StoredFile]:
        """Objects with temporary names; files of this node go when its copies need room."""
        return [file for file in self.below(folder) if final_name(file.path.name) is not None]

    def read(self, path: Path, checksum: str) -> bytes:
        """Read the copy; a damaged or outdated one is fetched again."""
        return opened_again(path, lambda: self._read_verified(path, checksum))

    @contextmanager
    def using(self, path: Path, checksum: str | None = None) -> Iterator[Path]:
        """Hold the copy of this node; one with another checksum is fetched again."""
        with self.verified(path, checksum) if checksum is not None else self._held(self.cache.open(path)) as place:
            yield place

    @contextmanager
    def verified(self, path: Path, checksum: str) -> Iterator[Path]:
        """Hold a copy with this checksum; a damaged or outdated one is fetched again."""
        with self._held(opened_again(path, lambda: self._open_verified(path, checksum))) as place:
            yield place

    def renewed(self, path: Path) -> bool:
        """Remove the copy of this node, and tell whether there is an object to fetch again."""
        self.cache.forget(path)
        return self.size(path) is not None

    def open_stored(self, path: Path) -> io.BufferedIOBase:
        """Open the object, past the copy. Raises ``FileNotFoundError`` and ``StorageError``."""
        name = self.cache.name_of(path)
        size = self.size_of(name)
        if size is None:
            raise FileNotFoundError(self.url_of(name))
        return _Pieces(self.pieces_of(name, size))

    @contextmanager
    def _held(self, descriptor: int) -> Iterator[Path]:
        try:
            yield _place_of(descriptor)
        finally:
            os.close(descriptor)

    def _open_verified(self, path: Path, checksum: str) -> int:
        descriptor = self.cache.open(path, checksum)
        found = checksum_of(_place_of(descriptor))
        if found != checksum:
            os.close(descriptor)
            raise CorruptFile(path, f"checksum {checksum}", found)
        return descriptor

    def _read_verified(self, path: Path, checksum: str) -> bytes:
        with open(self.cache.open(path, checksum), "rb") as file:
            content = file.read()
        if (found := bytes_digest(content)) != checksum:
            raise CorruptFile(path, f"checksum {checksum}", found)
        return content

    def _put(self, local: Path, path: Path) -> None:
        objects, address = self.objects, self._address(path)
        objects.put_file(str(local), objects.full_name(address), address)
        size = objects.size(address)
        if size != local.stat().st_size:
            raise WriteFailed(str(address), f"{local.stat().st_size} bytes were sent, {size} are stored")

    def _address(self, path: Path) -> PurePath:
        return self.objects.root / self.cache.name_of(path)


def _place_of(descriptor: int) -> Path:
    """Path of an open file for this process, with or without a name elsewhere."""
    return Path(f"/proc/self/fd/{descriptor}")


class _Pieces(io.BufferedIOBase):
    """Reads of the next piece, whatever its length."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces

    def read(self, size: int | None = -1, /) -> bytes:
        return next(self._pieces, b"")
