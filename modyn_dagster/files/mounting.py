"""Files at a path: those of this machine, unless the path lies below the copies of a store that this process has opened."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fastpath.copies import register_copies
from modyn_dagster.files.interface import Files
from modyn_dagster.files.local import LocalFiles
from modyn_dagster.values.digest import bytes_digest

if TYPE_CHECKING:
    from modyn_dagster.files.shared import SharedFiles

_LOCAL: Final = LocalFiles()
_shared: Final[dict[Path, "SharedFiles"]] = {}
_mounts: Final[dict[Path, "Mount"]] = {}


@dataclass(frozen=True, slots=True)
class Mount:
    """Copies of a store on a node.

    Attributes:
        home: folder of the node, which holds them.
        url: URL of the store.
        limit: bytes of copies that are not in use, at most.
    """

    home: Path
    url: str
    limit: int

    def open(self) -> None:
        """Let this process read and write files below the copies in the store."""
        home_of_files(self.home, self.url, self.limit)


def opened_stores() -> list[Mount]:
    """List the stores that this process has opened, for another process that is to read the same paths."""
    return list(_mounts.values())


def home_of_files(home: Path, url: str | None, limit: int) -> Path:
    """Folder that the paths of the catalog are relative to: the home itself, or that of the copies of a store.

    From then on, this process reads and writes files below it in the store. Nothing is asked of the store yet.

    Args:
        home: folder of this node.
        url: of the store; None: there is none.
        limit: bytes of copies that are not in use, at most.
    """
    if url is None:
        return home
    # Another store has other copies.
    folder = home.resolve() / "cache" / bytes_digest(url.encode(), 8)
    if (root := folder / "files") not in _shared:
        # Imported here: fsspec takes a while to import, and most homes need none.
        from modyn_dagster.files.shared import SharedFiles

        files = _shared.setdefault(root, SharedFiles(url, folder, limit))
        register_copies(root, files.cache)
    _shared[root].cache.room.limit = limit
    _mounts[root] = Mount(home, url, limit)
    return root


def files_at(path: Path) -> Files:
    """Files that a path belongs to."""
    if not _shared:
        return _LOCAL
    return next((files for root, files in _shared.items() if path.is_relative_to(root)), _LOCAL)
