"""C1: what grows with samples, files, triggers and ticks, in the three databases and in the home folder, of a live pipeline."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from benchmarks.figures.live import Live, running, until_idle
from benchmarks.figures.replaying import write_project
from benchmarks.measure import Machine, Spread
from benchmarks.report import Figure
from modyn_dagster.catalog.access.roles import DatabaseName
from modyn_dagster.catalog.database.urls import database_url
from modyn_dagster.cli.server import running_database
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.settings import Settings

_DATABASES: Final[tuple[DatabaseName, ...]] = ("modyn", "dagster", "mlflow")
#: Files that are measured, each a batch with one trigger.
_FILES: Final = 16
#: Files before them, with which tables and indexes get their first pages.
_BEFORE: Final = 3
#: Batches and rows that samples are measured with.
_SAMPLES: Final = (2, 200_000)
#: Relations that are listed by name, each with at least so many bytes a file.
_LISTED: Final = 500

_SIZES: Final = sa.text(
    "select coalesce(pg_partition_root(c.oid)::regclass, c.oid::regclass)::text, pg_total_relation_size(c.oid) "
    "from pg_class c join pg_namespace n on n.oid = c.relnamespace "
    "where c.relkind in ('r', 'm') and n.nspname not in ('pg_catalog', 'information_schema')"
)
_TICKS: Final = sa.text("select count(*), pg_total_relation_size('job_ticks') from job_ticks")


def growth(work: Path, machine: Machine) -> Iterator[Figure]:
    """Bytes a sample, a live file and a tick, by table and by folder; all with their indexes."""
    yield from _samples(work / "samples")
    with running(work / "growing", warm=True) as place:
        _deliver(place, _BEFORE)
        tables, folders = table_bytes(place.settings), _folder_bytes(place.settings.home)
        machine.sample()
        _deliver(place, _FILES)
        machine.sample()
        grown = Counter(table_bytes(place.settings))
        grown.subtract(tables)
        files = Counter(_folder_bytes(place.settings.home))
        files.subtract(folders)
        ticks, tick_bytes = _ticks(place.settings)
    for database in _DATABASES:
        mine = {table: n for table, n in grown.items() if table.startswith(f"{database}.") and table != "dagster.job_ticks"}
        what = f"database {database}, a file of one trigger"
        yield Figure(f"C1.{database}", what, Spread.of([sum(mine.values()) / _FILES / 1e3]), "kB")
    for table, n_bytes in grown.most_common():
        if n_bytes / _FILES >= _LISTED:
            yield Figure(f"C1.{table}", "a file of one trigger", Spread.of([n_bytes / _FILES / 1e3]), "kB")
    for folder, n_bytes in files.most_common():
        if n_bytes / _FILES >= _LISTED:
            yield Figure(f"C1.home.{folder}", "a file of one trigger", Spread.of([n_bytes / _FILES / 1e3]), "kB")
    yield Figure("C1.tick", "table job_ticks, a tick", Spread.of([tick_bytes / max(1, ticks)]), "bytes", note=f"{ticks} ticks")


def _samples(folder: Path) -> Iterator[Figure]:
    batches, rows = _SAMPLES
    write_project(folder / "project", batches, rows)
    settings = Settings(folder / "project", folder / "home")
    with running_database(settings), closing(Platform.open(settings)) as platform:
        [(name, spec)] = platform.project.datasets.items()
        before = Counter(table_bytes(settings))
        import_history(platform.engine, platform.home, spec, platform.project.root_of(name))
        grown = Counter(table_bytes(settings))
        grown.subtract(before)
        files = _folder_bytes(settings.home)
    yield Figure("C1.sample", "tables of samples, a sample", Spread.of([sum(grown.values()) / batches / rows]), "bytes")
    for name in ("batches", "shards"):
        what = f"folder {name}, a sample of 8 numbers, time and label"
        yield Figure(f"C1.sample.{name}", what, Spread.of([files.get(name, 0) / batches / rows]), "bytes")


def table_bytes(settings: Settings) -> dict[str, int]:
    """Bytes of every table with its indexes, partitions counted to their root, by ``database.table``."""
    found: Counter[str] = Counter()
    for database in _DATABASES:
        engine = sa.create_engine(database_url(settings, database))
        with engine.connect() as conn:
            for table, n_bytes in conn.execute(_SIZES):
                found[f"{database}.{table}"] += n_bytes
        engine.dispose()
    return dict(found)


def _ticks(settings: Settings) -> tuple[int, int]:
    engine = sa.create_engine(database_url(settings, "dagster"))
    with engine.connect() as conn:
        ticks, n_bytes = conn.execute(_TICKS).one()
    engine.dispose()
    return int(ticks), int(n_bytes)


def _folder_bytes(home: Path) -> Mapping[str, int]:
    """Bytes of the folders of a home, without the server's."""
    return {
        folder.name: sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        for folder in home.iterdir()
        if folder.is_dir() and folder.name != "postgres" and os.access(folder, os.R_OK)
    }


def _deliver(place: Live, files: int) -> None:
    for _ in range(files):
        place.deliver()
        place.wait_for("single", place.delivered)
        until_idle(place.instance)
