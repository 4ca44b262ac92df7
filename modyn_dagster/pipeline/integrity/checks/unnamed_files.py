"""Files below the home folder that no row names: remains of killed writers, of removals, of other installations."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from modyn_dagster.catalog.datasets import list_datasets
from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.catalog.triggers import list_triggers
from modyn_dagster.files.mounting import files_at
from modyn_dagster.ingestion.deletion.delete import is_replaced
from modyn_dagster.pipeline.integrity.finding import Finding, shown_path
from modyn_dagster.pipeline.operate.removal.datasets import DATASET_FOLDERS
from modyn_dagster.pipeline.operate.removal.pipelines import RUN_FOLDERS
from modyn_dagster.pipeline.platform import Platform, ahead_path, checkpoint_path, optimizers_path
from modyn_dagster.training.checkpoint.parts import SUFFIXES

#: Seconds after which a file counts as left behind: a younger one may be about to be named.
_SETTLED: Final = 3600


def settled_files(platform: Platform) -> list[Path]:
    """List the files in the folders of datasets and runs that are an hour old. Those written later are not on the list."""
    found, newest = list[Path](), time.time() - _SETTLED
    for top in (*DATASET_FOLDERS, *RUN_FOLDERS):
        # Those not to be looked at are left out: their checks say so if a row names them.
        files = files_at(platform.home).below(platform.home / top)
        found += [file.path for file in files if file.modified is not None and file.modified < newest]
    return sorted(found)


def unnamed_files(platform: Platform, files: Iterable[Path], named: Iterable[Path]) -> Iterator[Finding]:
    """Yield a finding for every file that is neither named, nor kept for a training, nor replaced by a deletion."""
    known = {*named, *_kept_for_runs(platform)}
    rest = [path for path in files if path not in known]
    with platform.transaction() as conn:
        datasets = list_datasets(conn) if rest else []
        rest = [path for path in rest if not any(is_replaced(conn, platform.home, row, path) for row in datasets)]
    for path in rest:
        size = files_at(path).size(path)
        if size is None:
            continue
        fault = f"{size:,} bytes that no row of the catalog names"
        remedy = "nothing reads it, and it may be removed"
        yield Finding("unnamed", "unnamed", shown_path(platform.home, path), "nobody", fault, remedy)


def _kept_for_runs(platform: Platform) -> Iterator[Path]:
    """Files that no row names by itself: checkpoints, optimizers, trainings ahead, and files that the next attempt replaces."""
    with platform.transaction() as conn:
        runs = list_runs(conn)
        triggers = [trigger for run in runs for trigger in list_triggers(conn, run.id)]
    for run in runs:
        if run.is_open:
            yield from files_at(platform.home).names((platform.home / ahead_path(run.id, 0)).parent)
            # Of trainings ahead: the catalog does not know their triggers yet.
            known = tuple(f"{trigger.ordinal:06d}" for trigger in triggers if trigger.run_id == run.id)
            checkpoints = files_at(platform.home).names((platform.home / checkpoint_path(run.id, 0)).parent)
            yield from (path for path in checkpoints if not path.name.startswith(known))
    for trigger in triggers:
        place = trigger.run_id, trigger.ordinal
        yield platform.home / optimizers_path(*place)
        if trigger.state not in ("trained", "skipped"):
            stem = f"training_sets/{trigger.run_id:06d}/{trigger.ordinal:06d}"
            paths = [checkpoint_path(*place) + suffix for suffix in ("", *SUFFIXES)]
            yield from (platform.home / path for path in [*paths, f"{stem}.arrow", f"{stem}.state.json"])
