"""Files and models that a deletion request is about, as they are before anything has changed."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import sqlalchemy as sa

from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.results.predictions import list_predictions, predictions_holding
from modyn_dagster.catalog.results.training_sets import find_training_set
from modyn_dagster.catalog.runs import get_run
from modyn_dagster.catalog.triggers import find_trigger
from modyn_dagster.files.mounting import files_at
from modyn_dagster.keys import KeyArray
from modyn_dagster.pipeline.operate.deletion.document import FileChange, FileKind, LiveInterval, ModelChange
from modyn_dagster.pipeline.operate.live_intervals import read_live_times
from modyn_dagster.pipeline.operate.sample_lineage import SampleUse
from modyn_dagster.pipeline.platform import Platform, checkpoint_path, optimizers_path
from modyn_dagster.training.checkpoint.parts import SUFFIXES


def changed_models(conn: sa.Connection, uses: Sequence[SampleUse], known: Collection[tuple[str, str]] = ()) -> list[ModelChange]:
    """Models of some uses with their live times, but for the ``known`` ones, by trigger and model."""
    live = read_live_times(conn)
    changes = []
    for use in uses:
        used = use.used_by
        if used.model_hash is None or (used.partition_key, used.model_hash) in known:
            continue
        time = live.get(used.partition_key)
        changes.append(
            ModelChange(
                pipeline=used.pipeline,
                trigger=used.partition_key,
                model=used.model_hash,
                n_samples=use.n_keys,
                because=use.sources,
                live=[] if time is None else [LiveInterval(since=time.since, until=time.until)],
            )
        )
    return changes


def changed_files(
    conn: sa.Connection, platform: Platform, dataset: DatasetRow, keys: KeyArray, uses: Sequence[SampleUse]
) -> list[FileChange]:
    """Files that hold the samples, or were made from them: of the uses' triggers, and predictions of the samples."""
    changes = [change for use in uses for change in _files_of(conn, platform, use)]
    for suffix in ("html", "png"):
        path = f"reports/{dataset.name}.{suffix}"
        if files_at(place := platform.place_of(path)).exists(place):
            changes.append(FileChange(kind="report", path=path))
    known = {change.path for change in changes}
    for trigger, file in predictions_holding(conn, dataset.name, keys):
        if file.path not in known:
            changes.append(FileChange(kind="predictions", path=file.path, trigger=trigger, before=file.checksum))
    return changes


def _files_of(conn: sa.Connection, platform: Platform, use: SampleUse) -> Iterator[FileChange]:
    used = use.used_by
    pipeline, trigger_key = used.pipeline, used.partition_key

    def change(kind: FileKind, path: str, before: str | None = None, n_samples: int | None = None) -> FileChange:
        return FileChange(kind=kind, path=path, pipeline=pipeline, trigger=trigger_key, n_samples=n_samples, before=before)

    yield change("training_set", used.path, used.checksum, use.n_keys)
    trigger = find_trigger(conn, used.pipeline, used.partition_key)
    row = find_training_set(conn, trigger.id)
    state = None if row is None else row.details.get("state")
    if state is not None:
        yield change("selector_state", state["path"], state["checksum"])
    trained: tuple[tuple[FileKind, str], ...] = (
        ("optimizers", optimizers_path(used.run_id, used.ordinal)),
        *(("checkpoint", checkpoint_path(used.run_id, used.ordinal) + suffix) for suffix in ("", *SUFFIXES)),
    )
    for kind, path in trained:
        if files_at(place := platform.home / path).exists(place):
            yield change(kind, path, used.model_hash if kind == "optimizers" else None)
    if used.model_hash is None:
        return
    store = platform.models_of(platform.spec_of(get_run(conn, used.run_id)))
    yield change("model", f"{_relative(platform, str(store.root))}/{used.model_hash}", used.model_hash)
    for file in list_predictions(conn, trigger.id):
        yield change("predictions", file.path, file.checksum)


def _relative(platform: Platform, root: str) -> str:
    """Root of a store, relative to the home folder where it is below that."""
    home = platform.settings.home
    return root if "://" in root or not Path(root).is_relative_to(home) else str(Path(root).relative_to(home))


def root_of(platform: Platform, file: FileChange) -> str:
    """Root of the store of a model in the document."""
    root = file.path.removesuffix(f"/{file.before}")
    return root if "://" in root else str(platform.settings.home / root)
