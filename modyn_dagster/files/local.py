"""Files of state in a folder of this machine."""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

from modyn_dagster.durability.names import (
    durable_folder,
    durable_link,
    final_name,
    settle,
    sync_folder,
    temporary_name,
    write_errors,
)
from modyn_dagster.errors import CorruptFile
from modyn_dagster.files.interface import StoredFile
from modyn_dagster.values.digest import bytes_digest, checksum_of


class LocalFiles:
    """Files where they are, renamed and removed in place; see ``Files``."""

    def stage(self, temporary: Path) -> None:
        """Do nothing: it is beside its final name."""

    def publish(self, temporary: Path, path: Path, *, staged: bool = False) -> None:
        """Rename the file, for good."""
        with write_errors(path):
            os.replace(temporary, path)
            sync_folder(path.parent)

    def discard(self, temporary: Path) -> None:
        """Do nothing: there is one file, which its writer removes."""

    def link(self, existing: Path, path: Path, *, replace: bool = False) -> None:
        """Give the file a second name. Raises ``OSError``."""
        if replace:
            temporary = temporary_name(path)
            durable_folder(path.parent)
            os.link(existing, temporary)
            self.publish(temporary, path)
            return
        durable_link(existing, path)
        if not existing.samefile(path):
            raise FileExistsError(str(path))

    def remove(self, path: Path) -> None:
        """Remove the file, if it exists."""
        path.unlink(missing_ok=True)

    def remove_below(self, folder: Path) -> None:
        """Remove the folder or file, for good."""
        if folder.is_dir():
            shutil.rmtree(folder)
        else:
            folder.unlink(missing_ok=True)
        settle(folder.parent)

    def settle(self, folder: Path) -> None:
        """Sync the folder, if there is one."""
        settle(folder)

    def exists(self, path: Path) -> bool:
        """True if there is a file or a folder."""
        return path.exists()

    def size(self, path: Path) -> int | None:
        """Bytes of the file; None for a missing one."""
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_size if S_ISREG(status.st_mode) else None

    def sizes(self, paths: Iterable[Path]) -> Mapping[Path, int]:
        """Bytes of those files that exist."""
        return {path: size for path in paths if (size := self.size(path)) is not None}

    def below(self, folder: Path) -> list[StoredFile]:
        """Files below the folder; those removed meanwhile, or not to be looked at, are left out."""
        found = []
        for place, _, names in os.walk(folder):
            for name in names:
                path = Path(place, name)
                with suppress(OSError):
                    status = path.lstat()
                    found.append(StoredFile(path, status.st_size, status.st_mtime))
        return found

    def names(self, folder: Path) -> list[Path]:
        """Paths of the files in the folder."""
        return list(folder.iterdir()) if folder.is_dir() else []

    def unfinished(self, folder: Path) -> list[StoredFile]:
        """Files with temporary names; one that is renamed meanwhile is left out."""
        found = []
        for path in folder.rglob(".*.tmp"):
            with suppress(FileNotFoundError):
                status = path.stat()
                if final_name(path.name) is not None:
                    found.append(StoredFile(path, status.st_size, status.st_mtime))
        return found

    def read(self, path: Path, checksum: str) -> bytes:
        """Read the file, and compare it with its checksum. Raises ``CorruptFile``."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise CorruptFile(path, f"a file with checksum {checksum}", "no file") from None
        if (found := bytes_digest(content)) != checksum:
            raise CorruptFile(path, f"checksum {checksum}", found)
        return content

    @contextmanager
    def using(self, path: Path, checksum: str | None = None) -> Iterator[Path]:
        """Nothing to hold: nobody removes a file that is needed."""
        yield path

    @contextmanager
    def verified(self, path: Path, checksum: str) -> Iterator[Path]:
        """Compare the file with its checksum. Raises ``CorruptFile``."""
        if not path.is_file():
            raise CorruptFile(path, f"a file with checksum {checksum}", "no file")
        found = checksum_of(path)
        if found != checksum:
            raise CorruptFile(path, f"checksum {checksum}", found)
        yield path

    def renewed(self, path: Path) -> bool:
        """True if the file exists."""
        return path.is_file()

    def open_stored(self, path: Path) -> BinaryIO:
        """Open the file, unbuffered."""
        return open(path, "rb", buffering=0)
