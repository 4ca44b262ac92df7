"""Disk usage of a project, by kind of file and by the dataset or pipeline that it belongs to."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from modyn_dagster.catalog.database.databases import database_bytes
from modyn_dagster.catalog.datasets import sample_bytes
from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.catalog.results.models import model_uses
from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.errors import CatalogError, DatabaseDown, StorageError
from modyn_dagster.files.mounting import files_at
from modyn_dagster.pipeline.operate.file_owners import KINDS, POSTGRES, Owners, classify
from modyn_dagster.pipeline.platform import Platform


@dataclass(frozen=True, slots=True)
class Usage:
    """Files of one kind that belong together.

    Attributes:
        owner: dataset or pipeline, or a description where they belong to neither.
        n_files: their number; None for tables of Postgres.
        n_bytes: space that they take on the disk, as `du` counts; a file with several names counts once. Of files below
            ``MODYN_FILES``, their bytes.
    """

    kind: str
    owner: str
    n_files: int | None
    n_bytes: int


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Disk usage of a project.

    Attributes:
        parts: by kind and owner, in the order of the kinds and, within one, the largest first.
        elsewhere: model stores that are neither on a local disk nor below ``MODYN_FILES``.
        problem: reason why owners of runs and models are unknown; None where the catalog answers.
        uncounted: reason why the files below ``MODYN_FILES`` are not counted; None where they are, or there is no such store.
    """

    parts: list[Usage]
    elsewhere: list[str]
    problem: str | None
    uncounted: str | None = None

    @property
    def n_bytes(self) -> int:
        """Sum of all parts."""
        return sum(part.n_bytes for part in self.parts)


def disk_usage(platform: Platform) -> DiskUsage:
    """Measure the files of a project; it also works while Postgres is down, without the names of runs' pipelines."""
    owners, tables, problem, uncounted = Owners({}, {}), dict[str, int](), None, None
    try:
        owners, tables = _read_catalog(platform)
    except CatalogError as error:
        problem = str(error)
    sizes: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    seen: set[tuple[int, int]] = set()
    local, elsewhere = _model_folders(platform)
    home = platform.settings.home
    for root in [home, *local, *_server_folder(platform)]:
        for path, stat in _files(root, seen):
            kind, owner = classify(home, local, path, owners)
            sizes[kind, owner][0] += 1
            sizes[kind, owner][1] += stat.st_blocks * 512
    try:
        for file in files_at(platform.home).below(platform.home) if platform.settings.files is not None else ():
            kind, owner = classify(platform.home, local, file.path, owners)
            sizes[kind, owner][0] += 1
            sizes[kind, owner][1] += file.n_bytes
    except StorageError as error:
        uncounted = str(error)
    parts = [Usage(kind, owner, n_files, n_bytes) for (kind, owner), (n_files, n_bytes) in sizes.items()]
    parts = _with_tables(parts, tables)
    parts.sort(key=lambda part: (KINDS.index(part.kind), -part.n_bytes, part.owner))
    return DiskUsage(parts, elsewhere, problem, uncounted)


def _read_catalog(platform: Platform) -> tuple[Owners, dict[str, int]]:
    """Owners, and the bytes of tables and databases in Postgres by owner."""
    with platform.transaction() as conn:
        runs = {run.id: run.pipeline for run in list_runs(conn)}
        pipelines: dict[str, set[str]] = defaultdict(set)
        for use in model_uses(conn):
            pipelines[use.hash].add(use.pipeline)
        tables, databases = sample_bytes(conn), database_bytes(conn, platform.settings)
    models = {model: next(iter(names)) if len(names) == 1 else "several pipelines" for model, names in pipelines.items()}
    tables["catalog"] = databases.pop("modyn") - sum(tables.values())
    tables |= {f"database {name}": n_bytes for name, n_bytes in databases.items()}
    return Owners(runs, models), tables


def _with_tables(parts: list[Usage], tables: Mapping[str, int]) -> list[Usage]:
    """Divide the bytes of the server's files by what they hold: samples of datasets, catalog, other databases, the rest."""
    if not tables:
        return parts
    files = sum(part.n_bytes for part in parts if part.kind == POSTGRES)
    divided = [Usage(POSTGRES, owner, None, n_bytes) for owner, n_bytes in tables.items()]
    # A server of one's own has its files elsewhere; its log and its write-ahead log are not ours.
    rest = max(0, files - sum(tables.values()))
    logs = [Usage(POSTGRES, "logs, system", sum(part.n_files or 0 for part in parts if part.kind == POSTGRES), rest)]
    return [*(part for part in parts if part.kind != POSTGRES), *divided, *(logs if files else [])]


def _model_folders(platform: Platform) -> tuple[list[Path], list[str]]:
    """Local folders of model stores that specs name, and the addresses of those elsewhere."""
    roots = [spec.model_store.root for spec in platform.project.pipelines.values() if spec.model_store.root is not None]
    local = [platform.home / root for root in dict.fromkeys(roots) if "://" not in root]
    return local, sorted({root for root in roots if "://" in root})


def _server_folder(platform: Platform) -> list[Path]:
    """Folder of the embedded server, which may be outside of the home folder."""
    if platform.settings.postgres_url is not None:
        return []
    try:
        return [EmbeddedPostgres(platform.settings.home, platform.settings.pg_bin).status().data.parent]
    except DatabaseDown:
        # Never started.
        return []


def _files(root: Path, seen: set[tuple[int, int]]) -> Iterator[tuple[Path, os.stat_result]]:
    """Files below a folder that were not seen before under another name, or by another folder."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            try:
                stat = path.lstat()
            except OSError:
                # Removed meanwhile.
                continue
            if (identity := (stat.st_dev, stat.st_ino)) not in seen:
                seen.add(identity)
                yield path, stat
