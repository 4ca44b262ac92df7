"""Where the files of a dataset lie, and what each must be."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fastpath.errors import CorruptFile, StoreError
from fastpath.index import IndexedFile
from fastpath.verified import Expected


@dataclass(frozen=True, slots=True)
class Roots:
    """Two folders: that of files which are read in place, and the home of shards.

    Attributes:
        dataset: its name.
        root: files read in place, by the paths in the indexes; None where there are none.
        home: shards lie at ``home/shards/<dataset>/<ordinal>.bin``; once samples were purged, ``<ordinal>.<rewrite>.bin``.
        modified: mtimes in nanoseconds that files had when they were ingested, by their path in the index.
    """

    dataset: str
    root: Path | None
    home: Path
    modified: Mapping[str, int]

    def expected(self, ordinal: int, file: IndexedFile, rewrite: str = "") -> Expected:
        """What a file of a batch must be; ``rewrite`` is the number that index and shard have behind the ordinal, if any.

        Raises ``CorruptFile`` for a path that leaves the root, ``StoreError`` when there is no root.
        """
        if file.path is None:
            path = self.home / "shards" / self.dataset / f"{ordinal}{rewrite and f'.{rewrite}'}.bin"
            return Expected(path, file.size, file.checksum)
        if self.root is None:
            raise StoreError(
                f"{self.dataset}: batch {ordinal} has {file.path!r}: files that are read in place lie in a local folder; "
                "open the store with its `root`"
            )
        return Expected(self._inside(self.root, file.path), file.size, file.checksum, self.modified.get(file.path))

    @staticmethod
    def _inside(root: Path, path: str) -> Path:
        expected = "a file below the dataset's root"
        try:
            resolved = (root / path).resolve()
        except (RuntimeError, ValueError, OSError) as error:  # a loop of symlinks, a null byte
            raise CorruptFile(path, expected, str(error)) from error
        if not resolved.is_relative_to(root.resolve()):
            raise CorruptFile(path, expected, "it lies outside, or is a symlink that leaves it")
        return resolved
