"""Walk of the folders that are searched: every file once, links followed, and whatever cannot be listed noted."""

import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from modyn_dagster.errors import one_line
from modyn_dagster.pipeline.operate.file_owners import OTHER, POSTGRES, Owners, classify

SPOOL: Final = "spool files"
NOBODY: Final = Owners({}, {})
_PROCESSES: Final = Path("/proc")
_UNNAMED: Final = re.compile(r"(?P<path>/.*) \(deleted\)")

#: Device and inode.
Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file to search, or a table of Postgres.

    Attributes:
        kind: of the file, as `modyn-dagster disk` names it; ``sources`` lie below the dataset's root and the home, ``originals``
            below the root alone.
        path: of the file; of an unnamed one, the link of the process that has it open; of a table, its name.
        shown: path for people, relative to the home where the file lies below it.
        n_bytes: when it was listed.
        open: opens it for reading; raises ``OSError``, ``StorageError`` or ``CatalogError``.
    """

    kind: str
    path: Path
    shown: str
    n_bytes: int
    open: Callable[[], Any]


class Walk:
    """Walk of several folders, in which each folder is entered once, by whatever name it is reached.

    Args:
        home: resolved, as all folders here.
        stores: folders of model stores.
        originals: root of the dataset if it lies outside of the home. It is searched for itself, so that a link from the home
            which makes none of our files of it is not followed.
    """

    def __init__(self, home: Path, stores: list[Path], originals: Path | None) -> None:
        self._home, self._stores, self._originals = home, stores, originals
        self._entered: set[Identity] = set()
        self._unread: dict[str, str] = {}

    @property
    def unread(self) -> list[tuple[str, str]]:
        """Folders and files that could not be listed so far, with the reason."""
        return list(self._unread.items())

    def below(self, top: Path, kind: str | None = None) -> Iterator[HeldFile]:
        """Yield the files below a folder that was not entered before, linked ones last.

        ``kind`` is that of all of them, if given.
        """
        seen, waiting = set[Identity](), [top]
        while waiting:
            path = waiting.pop()
            yield from self._file(path, seen, kind)
            for parent, folders, names in os.walk(path, onerror=self._missed) if self._enters(path) else ():
                inside, files = ([Path(parent, name) for name in listed] for listed in (folders, names))
                waiting += [each for each in (*inside, *files) if _is_link(each) and not self._is_original(each, kind)]
                folders[:] = [each.name for each in inside if not _is_link(each) and self._enters(each)]
                for file in files:
                    if not _is_link(file):
                        yield from self._file(file, seen, kind)

    def _enters(self, path: Path) -> bool:
        """True for a folder that was not entered before, and is none of Postgres."""
        try:
            facts = path.stat()
        except FileNotFoundError:  # noted as a file, or removed meanwhile
            return False
        except OSError as error:
            self._missed(error)
            return False
        if not stat.S_ISDIR(facts.st_mode):
            return False
        is_new = (identity := _identity(facts)) not in self._entered
        self._entered.add(identity)
        return is_new and not any(self._kind(each / "file") == POSTGRES for each in (path, path.resolve()))

    def _file(self, path: Path, seen: set[Identity], kind: str | None) -> Iterator[HeldFile]:
        try:
            facts = path.stat()
        except OSError as error:
            self._missed(error)
            return
        if stat.S_ISREG(facts.st_mode) and (identity := _identity(facts)) not in seen:
            seen.add(identity)
            yield HeldFile(kind or self._kind(path), path, self._shown(path), facts.st_size, partial(open, path, "rb"))

    def _kind(self, path: Path) -> str:
        is_ours = any(path.is_relative_to(folder) for folder in (self._home, *self._stores))
        return classify(self._home, self._stores, path, NOBODY)[0] if is_ours else OTHER

    def _is_original(self, link: Path, kind: str | None) -> bool:
        if self._originals is None or kind is not None or self._kind(link / "file") != OTHER:
            return False
        try:
            return link.resolve().is_relative_to(self._originals)
        except RuntimeError:  # a circle of links
            return False

    def _missed(self, error: OSError) -> None:
        path = Path(str(error.filename))
        # What was removed meanwhile holds nothing; the target of a link may be away for a while.
        if not isinstance(error, FileNotFoundError) or _is_link(path):
            self._unread[self._shown(path)] = one_line(error)

    def _shown(self, path: Path) -> str:
        return str(path.relative_to(self._home)) if path.is_relative_to(self._home) else str(path)


def unnamed_files(home: Path) -> Iterator[HeldFile]:
    """Yield the files without a name that processes of this account have open below the home, as column caches are."""
    seen = set[Identity]()
    for link in _PROCESSES.glob("[0-9]*/fd/*"):
        try:
            target = _UNNAMED.fullmatch(str(link.readlink()))
            if target is None or not Path(target["path"]).is_relative_to(home):
                continue
            facts = link.stat()
        except OSError:  # of another account, or closed meanwhile
            continue
        if stat.S_ISREG(facts.st_mode) and (identity := _identity(facts)) not in seen:
            seen.add(identity)
            yield HeldFile(SPOOL, link, f"unnamed file of process {link.parts[2]}", facts.st_size, partial(open, link, "rb"))


def _is_link(path: Path) -> bool:
    """Test for a link; what cannot even be looked at is noted by those who open it."""
    try:
        return path.is_symlink()
    except OSError:
        return False


def _identity(facts: os.stat_result) -> Identity:
    return facts.st_dev, facts.st_ino
