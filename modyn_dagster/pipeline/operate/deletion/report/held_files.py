"""Files that held or could hold the samples of a dataset: everything below the home, model stores, originals, unnamed files."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from modyn_dagster.catalog.database.table_contents import stored_tables
from modyn_dagster.files.mounting import files_at
from modyn_dagster.pipeline.operate.deletion.report.walking import NOBODY, HeldFile, Walk, unnamed_files
from modyn_dagster.pipeline.operate.file_owners import classify
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.storage import local_folder

ORIGINALS: Final = "originals"
SOURCES: Final = "sources"
#: Kinds of the files whose bytes belong to samples by their places.
BATCHES: Final = ("shards", SOURCES, ORIGINALS)
TABLES: Final = "tables of Postgres"


@dataclass(frozen=True, slots=True)
class Held:
    """Files to search, and places that could not be listed, with the reason."""

    files: list[HeldFile]
    unread: list[tuple[str, str]]


def held_files(platform: Platform, dataset: str) -> Held:
    """List the files to search, the batches and originals of the dataset first; each once, also if it has several names.

    Left out are the files of Postgres, in whose place the tables of our databases are listed. Model stores elsewhere are not
    listed. Raises ``DatabaseDown``.
    """
    home, stores = platform.settings.home.resolve(), _stores(platform)
    root = local_folder(platform.project.root_of(dataset))
    originals = root.resolve() if root is not None and not root.resolve().is_relative_to(home) else None
    walk = Walk(home, stores, originals)
    found = [] if root is None or originals is not None else list(walk.below(root.resolve(), SOURCES))
    found += [file for folder in [home, *stores] for file in walk.below(folder)]
    if originals is not None:
        # Last, so that a file of ours that lies there, or is an original by another name, is one of ours.
        found += walk.below(originals, ORIGINALS)
    if platform.settings.files is not None:
        shared = files_at(platform.home)
        for stored in shared.below(platform.home):
            kind, _ = classify(platform.home, stores, stored.path, NOBODY)
            shown = f"{platform.settings.files}/{stored.path.relative_to(platform.home)}"
            found.append(HeldFile(kind, stored.path, shown, stored.n_bytes, partial(shared.open_stored, stored.path)))
    found += unnamed_files(home)
    found += [HeldFile(TABLES, Path(each.name), each.name, each.n_bytes, each.open) for each in stored_tables(platform.settings)]
    return Held(sorted(found, key=lambda file: (file.kind not in BATCHES, file.kind, file.shown)), walk.unread)


def not_searched(platform: Platform, dataset: str) -> list[str]:
    """Addresses of model stores, and of the dataset's root, that are not searched, as they are no folders."""
    stores = {spec.model_store.root for spec in platform.project.pipelines.values() if spec.model_store.root is not None}
    named = {f"model store {root}" for root in stores if "://" in root and local_folder(root) is None}
    if local_folder(root := platform.project.root_of(dataset)) is None:
        named.add(f"root of the dataset {root}")
    return sorted(named)


def _stores(platform: Platform) -> list[Path]:
    roots = [spec.model_store.root for spec in platform.project.pipelines.values() if spec.model_store.root is not None]
    folders = [platform.settings.home / local for root in dict.fromkeys(roots) if (local := local_folder(root)) is not None]
    return [folder.resolve() for folder in folders]
