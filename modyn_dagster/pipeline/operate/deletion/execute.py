"""Execution of a deletion request: a state machine in the catalog, which a second call completes after a kill at any point.

=============  =====================================================================================================
state          what its step does
=============  =====================================================================================================
``deleting``   takes fingerprints, deletes the samples, and plans again: nothing new is selected or trained with them
``making``     makes or withdraws one model after the other (``making``), or begins runs anew (``new_runs``), scores models, and
               removes files (``sweeping``)
``showing``    shows the new models in MLflow, and marks the versions of the old ones
``finished``
=============  =====================================================================================================

Each change of the catalog and its part of the document are one transaction, which compares the request's epoch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.datasets import DatasetRow, get_dataset
from modyn_dagster.catalog.deletions import lock_deletions
from modyn_dagster.catalog.removal.deletion_requests import (
    DeletionRequestRow,
    get_request,
    insert_request,
    list_requests,
    move_request,
)
from modyn_dagster.catalog.removal.packed_keys import unpack_keys
from modyn_dagster.catalog.results.models import model_uses
from modyn_dagster.catalog.runs import get_run, move_run
from modyn_dagster.catalog.triggers import unfinished_trigger
from modyn_dagster.errors import ConfigError, RunError
from modyn_dagster.files.mounting import files_at
from modyn_dagster.ingestion.deletion.delete import delete_samples, replaced_files, sweep_replaced
from modyn_dagster.ingestion.deletion.purge import PurgedBatch, purge_samples
from modyn_dagster.keys import KeyArray
from modyn_dagster.pipeline.operate.deletion.affected import changed_files, changed_models
from modyn_dagster.pipeline.operate.deletion.document import OF_BATCHES, DeletionDocument, Way
from modyn_dagster.pipeline.operate.deletion.making import Request, evaluate_again, make_models
from modyn_dagster.pipeline.operate.deletion.new_runs import begin_anew, walk_anew
from modyn_dagster.pipeline.operate.deletion.report.taking import take_fingerprints
from modyn_dagster.pipeline.operate.deletion.since_arrival import concerned, decisions_that_depend
from modyn_dagster.pipeline.operate.deletion.sweeping import sweep
from modyn_dagster.pipeline.operate.sample_lineage import usages_of
from modyn_dagster.pipeline.platform import Platform

#: Shows the models of a request in MLflow, and yields a line for everything that is not shown. Raises ``TrackingError``.
Show = Callable[[DeletionDocument], Iterator[str]]


@dataclass(frozen=True, slots=True)
class _Step:
    platform: Platform
    dataset: DatasetRow
    keys: KeyArray
    show: Show


def begin_request(platform: Platform, dataset: DatasetRow, keys: KeyArray, planned: DeletionDocument) -> DeletionRequestRow:
    """Store a planned request; nothing else is changed. Raises ``RunError`` while an earlier one is not finished."""
    with platform.transaction() as conn:
        lock_deletions(conn, dataset.id)
        if open_ones := [row.id for row in list_requests(conn, dataset.id) if row.state != "finished"]:
            remedy = f"`modyn-dagster dataset delete {dataset.name} --request {open_ones[0]} --execute` completes it"
            raise RunError(f"deletion request {open_ones[0]} of dataset {dataset.name} is not finished; {remedy}")
        row = insert_request(conn, dataset.id, np.unique(keys), planned.model_dump(mode="json"))
        return move_request(conn, row, "deleting", planned.model_copy(update={"request": row.id}).model_dump(mode="json"))


def choose_ways(platform: Platform, request_id: int, ways: Mapping[str, Way]) -> None:
    """Take other ways for some pipelines of a stored request, as where a model cannot be made again.

    Raises:
        ConfigError: a pipeline has no model that saw the samples, or a run of it does not have the way.
        RunError: the models are made or withdrawn already.
        StaleRun: another process executes the request.
    """
    with platform.transaction() as conn:
        row = get_request(conn, request_id)
        document = DeletionDocument.model_validate(row.document)
        if row.state not in ("deleting", "making"):
            raise RunError(f"deletion request {request_id} has no way to choose any more: its models are made or withdrawn")
        if unknown := ways.keys() - {action.pipeline for action in document.actions}:
            raise ConfigError("dataset delete", "--way", min(unknown), "has no model that saw the samples of this request")
        actions = [action.on_way(ways[action.pipeline]) if action.pipeline in ways else action for action in document.actions]
        changed = document.model_copy(update={"actions": actions})
        move_request(conn, row, row.state, changed.model_dump(mode="json"))


def execute_request(platform: Platform, request_id: int, show: Show) -> DeletionRequestRow:
    """Execute a request to its end, from wherever it stands.

    Raises:
        RunError: a process works on a replay that is to be changed, or a model cannot be made again; call it again later, or
            after ``choose_ways``.
        StaleRun: another process executes the request.
        TrackingError: MLflow does not answer; everything else is done, and the next call only shows it.
    """
    steps = {"deleting": _delete, "making": _make, "showing": _show}
    while True:
        with platform.transaction() as conn:
            row = get_request(conn, request_id)
            dataset = get_dataset(conn, DeletionDocument.model_validate(row.document).dataset)
        if row.state == "finished":
            return row
        steps[row.state](_Step(platform, dataset, unpack_keys(row.keys), show), row)


def _delete(step: _Step, row: DeletionRequestRow) -> None:
    platform, document = step.platform, DeletionDocument.model_validate(row.document)
    # While the bytes are there: the report searches for them.
    take_fingerprints(platform, step.dataset, step.keys, row.id, document.salt)
    delete_samples(platform.engine, platform.home, step.dataset, step.keys, document.reason)
    uses = usages_of(platform, step.dataset.id, step.keys)
    chosen: dict[str, Way] = {action.pipeline: action.way for action in document.actions if action.by == "person"}
    notes = list(document.notes)
    with platform.transaction() as conn:
        models = model_uses(conn)
        while True:
            try:
                uses, actions = concerned(conn, platform, step.dataset, step.keys, uses, models, document.mode, chosen)
                break
            except ConfigError as error:
                pipeline, _, way = str(error.value).partition("=")
                if not way:
                    # The models that it was chosen for are gone.
                    del chosen[pipeline]
                    continue
                # Another run of the pipeline came since the plan, and does not have the way. The samples are deleted by now.
                notes.append(f"{error.rule}: retired instead")
                chosen[pipeline] = "retire"
        changes = {
            "actions": actions,
            "notes": notes,
            "models": changed_models(conn, uses),
            "files": [
                *(file for file in document.files if file.kind in OF_BATCHES),
                *changed_files(conn, platform, step.dataset, step.keys, uses),
            ],
        }
        planned = document.model_copy(update=changes)
    for file in planned.files:
        if file.kind == "selector_state":
            # States hold the keys; without its file a state is computed again, without them.
            path = platform.home / file.path
            files_at(path).remove(path)
    with transaction(platform.engine) as conn:
        move_request(conn, row, "making", planned.model_dump(mode="json"))


def _make(step: _Step, row: DeletionRequestRow) -> None:
    request = Request(step.platform, step.dataset, step.keys, row)
    is_kept = request.document.mode == "kept"
    request = evaluate_again(make_models(request) if is_kept else walk_anew(begin_anew(request)))
    document = request.document
    _stop_retired(step.platform, document)
    document = document.model_copy(update={"notes": sorted({*document.notes, *_left_in_files(document)})})
    if document.purge:
        spec = step.platform.project.datasets[step.dataset.name]
        purged = purge_samples(step.platform.engine, step.platform.home, spec, step.dataset, step.keys)
        document = document.model_copy(update={"notes": sorted({*document.notes, *_left_by_purge(purged)})})
    swept = sweep(step.platform, step.dataset, step.keys, document)
    if not is_kept:
        with step.platform.transaction() as conn:
            # Some of the runs may have been retired since the plan.
            depend = decisions_that_depend(conn, step.platform, step.dataset, step.keys, swept.actions)
        swept = swept.model_copy(update={"decisions_depend": depend})
    actions = [action.model_copy(update={"state": "done"}) for action in swept.actions]
    with step.platform.transaction() as conn:
        move_request(conn, request.row, "showing", swept.model_copy(update={"actions": actions}).model_dump(mode="json"))


def _left_in_files(document: DeletionDocument) -> Iterator[str]:
    """Files of initial weights: they belong to the project, and no deletion changes them."""
    for pipeline in _from_files(document):
        yield (
            f"pipeline {pipeline}: training.initial_weights holds the weights of a model that saw the samples; its live run is "
            f"stopped. Replace the file, then `modyn-dagster pipeline resume {pipeline}`"
        )


def _left_by_purge(purged: Sequence[PurgedBatch]) -> Iterator[str]:
    """Original files that hold the samples: a purge never changes them."""
    for batch in purged:
        for path, n_samples in batch.in_place.items():
            yield f"{path}: read in place and not touched by the purge; it still holds {n_samples} of the samples"
        for path in batch.copied_from:
            yield f"{path}: copied at ingestion and not touched by the purge; where it still exists, it holds samples"


def _left_by_trainings(step: _Step, document: DeletionDocument) -> Iterator[str]:
    """Replaced files with the bytes of purged samples that trainings still read; where none is under way, they are removed."""
    if not document.purge:
        return
    engine, home = step.platform.engine, step.platform.home
    sweep_replaced(engine, home, step.dataset)
    for path in replaced_files(engine, home, step.dataset):
        remedy = f"purge them again once none is under way: `modyn-dagster dataset delete {step.dataset.name} ... --purge`"
        yield f"{path.relative_to(home)}: a training may still read this replaced file, which holds purged samples; {remedy}"


def _from_files(document: DeletionDocument) -> set[str]:
    """Pipelines whose file of initial weights holds those of a model that goes."""
    return {model.pipeline for model in document.models if "initial_weights" in model.because}


def _stop_retired(platform: Platform, document: DeletionDocument) -> None:
    """Stop the live runs that a person retired, until they are resumed; an unfinished trigger is finished first.

    Live runs that would begin the next training with weights that go stop, too.
    """
    for action in document.actions:
        is_retired = action.way == "retire" and action.by == "person"
        if action.mode != "live" or not (is_retired or action.pipeline in _from_files(document)):
            continue
        with platform.transaction() as conn:
            run = get_run(conn, action.run_id, lock=True)
            if run.state == "active":
                is_training = unfinished_trigger(conn, run.id) is not None
                move_run(conn, run, state="stopping" if is_training else "stopped")


def _show(step: _Step, row: DeletionRequestRow) -> None:
    document = DeletionDocument.model_validate(row.document)
    notes = [*document.notes, *_left_by_trainings(step, document), *step.show(document)]
    changes = {"notes": notes, "finished_at": datetime.now(UTC), "selection": document.selection.hidden(document.salt)}
    finished = document.model_copy(update=changes)
    with step.platform.transaction() as conn:
        move_request(conn, row, "finished", finished.model_dump(mode="json"))
