"""Models of a deletion request, made again or withdrawn one after the other, in the order of their triggers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from time import perf_counter

import sqlalchemy as sa

from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.deletions import deletion_stamp, lock_deletions
from modyn_dagster.catalog.removal.deletion_requests import DeletionRequestRow, move_request
from modyn_dagster.catalog.results.models import ModelRow, model_uses
from modyn_dagster.catalog.results.predictions import PredictionFileRow, predictions_holding, remove_predictions
from modyn_dagster.catalog.results.training_sets import TrainingSetRow
from modyn_dagster.catalog.runs import get_run, list_runs
from modyn_dagster.keys import KeyArray, ordinal_of
from modyn_dagster.pipeline.context import trained_contexts
from modyn_dagster.pipeline.operate.deletion.affected import changed_files, changed_models
from modyn_dagster.pipeline.operate.deletion.document import DeletionDocument, FileChange, PipelineAction
from modyn_dagster.pipeline.operate.deletion.since_arrival import concerned, uses_since
from modyn_dagster.pipeline.operate.deletion.ways import clean_before
from modyn_dagster.pipeline.operate.sample_lineage import SampleUse, usages_of
from modyn_dagster.pipeline.platform import Platform, deletions_of
from modyn_dagster.pipeline.promotion.deletions import GateAfterDeletion
from modyn_dagster.pipeline.replay.run import run_lock
from modyn_dagster.pipeline.stages.model.replacement import replace_model, replacement_context, withdraw_model
from modyn_dagster.pipeline.stages.trigger_stages import evaluation_stage


@dataclass(frozen=True, slots=True)
class Request:
    """A request under way: its row as this process left it."""

    platform: Platform
    dataset: DatasetRow
    keys: KeyArray
    row: DeletionRequestRow

    @property
    def document(self) -> DeletionDocument:
        """Document as of the last step."""
        return DeletionDocument.model_validate(self.row.document)

    def moved(self, conn: sa.Connection, document: DeletionDocument) -> "Request":
        """Record a changed document in a transaction of the caller."""
        return replace(self, row=move_request(conn, self.row, self.row.state, document.model_dump(mode="json")))


def make_models(request: Request) -> Request:
    """Make again or withdraw every model that saw the samples, also those that were trained meanwhile from such a model."""
    while True:
        document = request.document
        uses = _remaining(request, document)
        if new := [use for use in uses if _key(use) not in {(model.trigger, model.model) for model in document.models}]:
            request = _with_uses(request, document, new)
            continue
        if not uses:
            return request
        request = _make_one(request, document, uses[0])


def _remaining(request: Request, document: DeletionDocument) -> list[SampleUse]:
    done = {(model.trigger, model.replaced_by) for model in document.models}
    # A model that came out the same has not changed with the samples, and one that only was decided later has not seen them.
    saw = [model for model in document.models if model.replaced_by != model.model and list(model.because) != ["decisions"]]
    seen = {model.model for model in saw}
    runs = {action.run_id: min(map(_ordinal_of, action.triggers)) for action in document.actions if action.triggers}
    uses = usages_of(request.platform, request.dataset.id, request.keys, seen, runs)
    if document.mode == "as_if_deleted":
        with request.platform.transaction() as conn:
            uses = uses_since(conn, request.platform, request.dataset.id, request.keys, uses)
    return [use for use in uses if use.used_by.model_hash is not None and (_key(use) not in done or _is_from_file(use))]


def _is_from_file(use: SampleUse) -> bool:
    """Test that training began with a file of weights that go: made again, the model would begin with it once more."""
    return "initial_weights" in use.sources


def _key(use: SampleUse) -> tuple[str, str | None]:
    return use.used_by.partition_key, use.used_by.model_hash


def _with_uses(request: Request, document: DeletionDocument, new: Sequence[SampleUse]) -> Request:
    """Record models that the plan does not have yet, before any of them is touched."""
    with request.platform.transaction() as conn:
        models = model_uses(conn)
        known = {action.run_id for action in document.actions}
        _, actions = concerned(conn, request.platform, request.dataset, request.keys, new, models, document.mode, {})
        fresh = [action for action in actions if action.run_id not in known]
        paths = {file.path for file in document.files}
        files = changed_files(conn, request.platform, request.dataset, request.keys, new)
        changes = {
            "actions": [*(_with_triggers(action, new) for action in document.actions), *fresh],
            "models": [*document.models, *changed_models(conn, new)],
            "files": [*document.files, *(file for file in files if file.path not in paths)],
        }
        return request.moved(conn, document.model_copy(update=changes))


def _with_triggers(action: PipelineAction, new: Sequence[SampleUse]) -> PipelineAction:
    found = [use.used_by.partition_key for use in new if use.used_by.run_id == action.run_id]
    return action.model_copy(update={"triggers": [*action.triggers, *found]})


def _make_one(request: Request, document: DeletionDocument, use: SampleUse) -> Request:
    used, began = use.used_by, perf_counter()
    action = next(action for action in document.actions if action.run_id == used.run_id)
    moved = request

    def record(conn: sa.Connection, model: ModelRow | None, training_set: TrainingSetRow | None) -> None:
        nonlocal moved
        gate.move(conn, model)
        changed = _changed(document, action, use, model, training_set, perf_counter() - began)
        moved = request.moved(conn, changed)

    note = {"deletion_request": document.request, "replaces": used.model_hash}
    with request.platform.transaction() as conn:
        models = model_uses(conn)
    saw = {each.trigger for each in document.models}
    # A run that began with a withdrawn model of the run before begins with the newest clean one that is older than that.
    replaced = {each.model: each.replaced_by or clean_before(models, saw, each.trigger) for each in document.models}
    with _alone(request.platform, used.run_id, used.mode):
        context = replacement_context(request.platform, used.pipeline, used.partition_key, replaced)
        gate = GateAfterDeletion(request.platform, context.run, context.trigger.ordinal)
        if action.way == "retrain" and not _is_from_file(use):
            replace_model(context, note, document.request, record)
        else:
            gate.load_heirs()
            withdraw_model(context, f"deletion request {document.request}", record)
    return moved


def _run_of(trigger: str) -> int:
    """Id of the run in a trigger's partition key."""
    return int(trigger.partition("-")[0])


def _ordinal_of(trigger: str) -> int:
    """Ordinal in a trigger's partition key."""
    return int(trigger.partition("-")[2])


def _changed(
    document: DeletionDocument,
    action: PipelineAction,
    use: SampleUse,
    model: ModelRow | None,
    training_set: TrainingSetRow | None,
    seconds: float,
) -> DeletionDocument:
    used = use.used_by
    models = [
        each.model_copy(update={"replaced_by": None if model is None else model.hash})
        if (each.trigger, each.model) == (used.partition_key, used.model_hash)
        else each
        for each in document.models
    ]
    files = list(document.files)
    if training_set is not None and model is not None:
        owner = {"pipeline": used.pipeline, "trigger": used.partition_key}
        files.append(FileChange(kind="training_set", path=training_set.path, n_samples=0, after=training_set.checksum, **owner))
    actions = [
        each.model_copy(update={"state": "under_way", "took": each.took + seconds}) if each.run_id == action.run_id else each
        for each in document.actions
    ]
    return document.model_copy(update={"models": models, "files": files, "actions": actions})


@contextmanager
def _alone(platform: Platform, run_id: int, mode: str) -> Iterator[None]:
    """Keep other processes off a replay; a live run moves by short transactions that compare what they read."""
    with platform.transaction() as conn:
        run = get_run(conn, run_id)
    with run_lock(platform.engine, run) if mode == "replay" else nullcontext():
        yield


def _was_made_since(conn: sa.Connection, dataset: DatasetRow, file: PredictionFileRow) -> bool:
    """Test that a file of predictions leaves out everything that is deleted in its batches."""
    stamp = deletion_stamp(conn, dataset.id, ordinal_of(file.first_key), ordinal_of(file.last_key))
    return deletions_of(file.path) == stamp > 0


def evaluate_again(request: Request) -> Request:
    """Predict and score what is missing since: for new models, and for others whose predictions hold the samples."""
    platform, document = request.platform, request.document
    paths = {file.path for file in document.files}
    # Not by their paths: an evaluation under way may have taken over the content of a file under another name.
    before = {file.before for file in document.files if file.kind == "predictions"}
    with platform.transaction() as conn:
        # Evaluations that record predictions are waited for; those that come later compare with this.
        lock_deletions(conn, request.dataset.id)
        holding = predictions_holding(conn, request.dataset.name, request.keys)
        stale = [
            (trigger, file)
            for trigger, file in holding
            if file.checksum in before and not _was_made_since(conn, request.dataset, file)
        ]
        remove_predictions(conn, [file.id for _, file in stale])
        taken_over = [
            FileChange(kind="predictions", path=file.path, trigger=trigger, before=file.checksum)
            for trigger, file in stale
            if file.path not in paths
        ]
        if taken_over:
            document = document.model_copy(update={"files": [*document.files, *taken_over]})
            request = request.moved(conn, document)
        touched = {_run_of(trigger) for trigger, _ in stale} | {action.run_id for action in document.actions}
        runs = [run for run in list_runs(conn) if run.id in touched]
    for run in runs:
        spec = platform.spec_of(run)
        if spec.evaluation.matrix == "lazy":
            continue
        view = platform.view_of(run, until=run.last_ordinal if run.mode == "replay" else None)
        for context in trained_contexts(platform, run, view):
            evaluation_stage(context, finished=run.state == "finished")
    return request
