"""Removal of the files that a deletion request is about, once nothing in the catalog names them."""

from collections import defaultdict

from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.results.models import model_uses
from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.catalog.results.training_sets import find_training_set, mark_training_sets_removed
from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.catalog.triggers import UNFINISHED, TriggerRow, list_triggers, unfinished_trigger
from modyn_dagster.errors import RunError, UnknownModel
from modyn_dagster.files.mounting import files_at
from modyn_dagster.keys import KeyArray
from modyn_dagster.pipeline.operate.deletion.affected import root_of
from modyn_dagster.pipeline.operate.deletion.batch_files import batch_files, files_since
from modyn_dagster.pipeline.operate.deletion.document import OF_BATCHES, DeletionDocument, FileChange
from modyn_dagster.pipeline.operate.removal.completion import remove_models
from modyn_dagster.pipeline.platform import Platform, ahead_path, checkpoint_path
from modyn_dagster.pipeline.replay.lookahead import clear_ahead
from modyn_dagster.pipeline.replay.run import require_idle
from modyn_dagster.training import CheckpointFile


def sweep(platform: Platform, dataset: DatasetRow, keys: KeyArray, document: DeletionDocument) -> DeletionDocument:
    """Remove files and models that are withdrawn; returns the document with what is there now. A second call does the same."""
    named = _named_files(platform, document)
    with platform.transaction() as conn:
        now = batch_files(conn, platform, dataset, keys)
    files = files_since([file for file in document.files if file.kind in OF_BATCHES], now)
    files += [_swept(platform, file, named) for file in document.files if file.kind not in OF_BATCHES]
    stays = _remove_models(platform, document)
    stays += _clear_guesses(platform, dataset)
    _clear_checkpoints(platform, document)
    return document.model_copy(update={"files": files, "notes": sorted({*document.notes, *stays})})


def _clear_guesses(platform: Platform, dataset: DatasetRow) -> list[str]:
    """Remove what workers trained ahead for runs of the dataset; returns a line for each replay that is under way.

    Such a replay takes up none that saw the samples, and removes them at its end.
    """
    stays = []
    with platform.transaction() as conn:
        runs = [run for run in list_runs(conn) if run.dataset_id == dataset.id and run.mode == "replay"]
    for run in runs:
        folders = [(platform.home / path(run.id, 0)).parent for path in (ahead_path, checkpoint_path)]
        if not any(files_at(folder).names(folder) for folder in folders):
            continue
        try:
            with platform.transaction() as conn:
                require_idle(conn, run)
                clear_ahead(platform, run)
        except RunError:
            stays.append(f"{run.title}: a process works on it; what it trained ahead is removed when it ends")
    return stays


def _clear_checkpoints(platform: Platform, document: DeletionDocument) -> None:
    """Remove the checkpoints of attempts of the affected runs, which may have begun with a withdrawn model."""
    for run_id in {action.run_id for action in document.actions}:
        with platform.transaction() as conn:
            trigger = unfinished_trigger(conn, run_id)
        if trigger is not None:
            CheckpointFile(platform.home / checkpoint_path(run_id, trigger.ordinal)).remove()


def _named_files(platform: Platform, document: DeletionDocument) -> dict[str, str]:
    """Checksums by path of the files that the catalog names, of triggers in the document."""
    owners = {file.trigger for file in document.files if file.trigger}
    named: dict[str, str] = {}
    with platform.transaction() as conn:
        for run in list_runs(conn):
            # Also runs of other datasets: their models may have predicted the samples.
            for trigger in list_triggers(conn, run.id):
                if trigger.partition_key not in owners:
                    continue
                named |= {file.path: file.checksum for file in list_predictions(conn, trigger.id) if file.removed_at is None}
                row = find_training_set(conn, trigger.id)
                # An attempt under way may still read a set that was withdrawn; the next one replaces it.
                if row is None or (row.removed_at is not None and trigger.state not in UNFINISHED):
                    continue
                if _holds_samples(trigger, row.path, document):
                    mark_training_sets_removed(conn, [trigger.id])
                    continue
                named[row.path] = row.checksum
                if "state" in row.details:
                    named[row.details["state"]["path"]] = row.details["state"]["checksum"]
        named |= {use.partition_key: use.hash for use in model_uses(conn)}
    return named


def _holds_samples(trigger: TriggerRow, path: str, document: DeletionDocument) -> bool:
    """Test the set of a trigger without a model for the samples; one that is still to be trained is selected again."""
    if trigger.state == "trained" or trigger.state in UNFINISHED:
        return False
    return any(file.kind == "training_set" and file.path == path and file.after is None for file in document.files)


def _swept(platform: Platform, file: FileChange, named: dict[str, str]) -> FileChange:
    if file.kind == "model":
        return file
    if file.kind == "optimizers" and file.trigger in named:
        # Written again with the model that the trigger has now.
        return file.model_copy(update={"after": named[file.trigger]})
    if file.kind == "checkpoint":
        CheckpointFile(platform.home / file.path).remove()
    elif file.path not in named:
        path = platform.place_of(file.path)
        files_at(path).remove(path)
    return file.model_copy(update={"after": named.get(file.path)})


def _remove_models(platform: Platform, document: DeletionDocument) -> list[str]:
    going: dict[str, list[str]] = defaultdict(list)
    kept = {model.model for model in document.models if model.replaced_by == model.model}
    for file in document.files:
        if file.kind == "model" and file.before is not None and file.before not in kept:
            going[root_of(platform, file)].append(file.before)
            try:
                platform.weight_cache.delete(file.before)
            except UnknownModel:
                continue
    return remove_models(platform, going, rebase=True)
