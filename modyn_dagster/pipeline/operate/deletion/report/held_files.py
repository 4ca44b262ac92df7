"""Files that held or could hold the samples of a dataset: everything below the home, model stores, originals, unnamed files."""

import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from modyn_dagster.catalog.database.table_contents import stored_tables
from modyn_dagster.files.mounting import files_at
from modyn_dagster.pipeline.operate.deletion.report.fingerprints import SUFFIX
from modyn_dagster.pipeline.operate.file_owners import POSTGRES, Owners, classify
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.storage import local_folder

ORIGINALS: Final = "originals"
SOURCES: Final = "sources"
#: Kinds of the files whose bytes belong to samples by their places.
BATCHES: Final = ("shards", SOURCES, ORIGINALS)
SPOOL: Final = "spool files"
TABLES: Final = "tables of Postgres"
_PROCESSES: Final = Path("/proc")
_UNNAMED: Final = re.compile(r"(?P<path>/.*) \(deleted\)")
_NOBODY: Final = Owners({}, {})


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


def held_files(platform: Platform, dataset: str) -> list[HeldFile]:
    """List the files to search, the batches and originals of the dataset first; each once, also if it has several names.

    Left out are fingerprints, and the files of Postgres, in whose place the tables of our databases are listed. Model stores
    elsewhere are not listed. Raises ``DatabaseDown``.
    """
    home, seen = platform.settings.home.resolve(), set[tuple[int, int]]()
    stores = _stores(platform)
    found = list[HeldFile]()
    if (root := local_folder(platform.project.root_of(dataset))) is not None:
        root = root.resolve()
        found += _below(root, home, stores, seen, kind=SOURCES if root.is_relative_to(home) else ORIGINALS)
    found += [file for folder in [home, *stores] for file in _below(folder, home, stores, seen)]
    if platform.settings.files is not None:
        shared = files_at(platform.home)
        for stored in shared.below(platform.home):
            kind, _ = classify(platform.home, stores, stored.path, _NOBODY)
            shown = f"{platform.settings.files}/{stored.path.relative_to(platform.home)}"
            found.append(HeldFile(kind, stored.path, shown, stored.n_bytes, partial(shared.open_stored, stored.path)))
    found += _unnamed_files(home, seen)
    found += [HeldFile(TABLES, Path(each.name), each.name, each.n_bytes, each.open) for each in stored_tables(platform.settings)]
    return sorted(found, key=lambda file: (file.kind not in BATCHES, file.kind, file.shown))


def stores_elsewhere(platform: Platform) -> list[str]:
    """Addresses of model stores that are not searched."""
    roots = {spec.model_store.root for spec in platform.project.pipelines.values() if spec.model_store.root is not None}
    return sorted(root for root in roots if "://" in root and local_folder(root) is None)


def _stores(platform: Platform) -> list[Path]:
    roots = [spec.model_store.root for spec in platform.project.pipelines.values() if spec.model_store.root is not None]
    folders = [platform.settings.home / local for root in dict.fromkeys(roots) if (local := local_folder(root)) is not None]
    return [folder.resolve() for folder in folders]


def _below(
    folder: Path, home: Path, stores: list[Path], seen: set[tuple[int, int]], *, kind: str | None = None
) -> Iterator[HeldFile]:
    for parent, folders, names in os.walk(folder):
        # A root may lie above the home.
        folders[:] = [name for name in folders if Path(parent, name) != home]
        for name in names:
            path = Path(parent, name)
            try:
                facts = path.lstat()
            except OSError:  # removed meanwhile
                continue
            of_kind = kind or classify(home, stores, path, _NOBODY)[0]
            if not stat.S_ISREG(facts.st_mode) or of_kind == POSTGRES or path.suffix == SUFFIX:
                continue
            if (identity := (facts.st_dev, facts.st_ino)) not in seen:
                seen.add(identity)
                shown = str(path.relative_to(home)) if path.is_relative_to(home) else str(path)
                yield HeldFile(of_kind, path, shown, facts.st_size, partial(open, path, "rb"))


def _unnamed_files(home: Path, seen: set[tuple[int, int]]) -> Iterator[HeldFile]:
    """Files without a name that processes of this account have open below the home, as column caches are."""
    for link in _PROCESSES.glob("[0-9]*/fd/*"):
        try:
            target = _UNNAMED.fullmatch(str(link.readlink()))
            if target is None or not Path(target["path"]).is_relative_to(home):
                continue
            facts = link.stat()
        except OSError:  # of another account, or closed meanwhile
            continue
        if stat.S_ISREG(facts.st_mode) and (identity := (facts.st_dev, facts.st_ino)) not in seen:
            seen.add(identity)
            yield HeldFile(SPOOL, link, f"unnamed file of process {link.parts[2]}", facts.st_size, partial(open, link, "rb"))
