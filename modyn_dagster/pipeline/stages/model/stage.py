"""Stage ``model``: train on the training set of a trigger, store the model, move the run on."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import sqlalchemy as sa

from modyn_dagster.catalog.deletions import block_deletions
from modyn_dagster.catalog.results.models import ModelRow, block_model_removals, insert_model, list_models
from modyn_dagster.catalog.results.training_sets import TrainingSetRow
from modyn_dagster.catalog.runs import get_run, move_run
from modyn_dagster.catalog.timings import Timing, record_timing, seconds_by_stage
from modyn_dagster.catalog.triggers import finish, hold
from modyn_dagster.errors import NotReproducible, RunError, UnknownModel
from modyn_dagster.files.mounting import files_at
from modyn_dagster.pipeline.context import Stopwatch, TriggerContext
from modyn_dagster.pipeline.stages.model.deleted_meanwhile import committing, require_base, require_present
from modyn_dagster.pipeline.stages.model.finished_training import FinishedTraining
from modyn_dagster.pipeline.stages.model.model_saving import store_model
from modyn_dagster.pipeline.stages.model.training import checkpoint_of, fit, initial_model, previous_model, save_optimizers
from modyn_dagster.pipeline.stages.training_set.stage import select_training_set
from modyn_dagster.progress import ProgressCallback
from modyn_dagster.training import FastPath, TrainedModel
from modyn_dagster.triggering import ModelTrained
from modyn_dagster.triggering.build import pipeline_policy

#: Stages whose seconds, over all attempts, a policy gets as the cost of a model. Evaluation costs the same at any trigger.
_COST_STAGES: Final = ("select", "train", "save")

#: Looks for the training of a context's trigger on its training set, made ahead by a worker; None where there is none.
Ahead = Callable[[TriggerContext], FinishedTraining | None]


def train_model(
    context: TriggerContext,
    progress: ProgressCallback | None = None,
    fast_path: FastPath = FastPath(),  # noqa: B008 - frozen
    ahead: Ahead | None = None,
) -> TriggerContext | None:
    """Train the model of a claimed trigger and commit it while the claim holds; None when the training set is empty.

    Returns the context with the model. A trained trigger is trained again, which must reach the same hash, or ``RunError``.
    A training that a worker has made ahead takes the place of this process's own.
    """
    training_set = context.training_set
    if training_set is None:
        raise RunError(f"trigger {context.trigger.partition_key} has no training set yet; materialize it first")
    if training_set.n_samples == 0:
        _skip(context, training_set.details.get("skipped"))
        return None
    trained_before = context.trigger.state == "trained"
    # Before training: a replay whose costs are not recorded need not train first to find out.
    recorded = recorded_seconds(context)
    finished = None if ahead is None or trained_before else ahead(context)
    if finished is None:
        watch = Stopwatch("train")
        trained = fit(
            context,
            training_set,
            previous=None if context.previous is None else previous_model(context, context.previous),
            # Training a trained trigger again is a check, and begins at the beginning.
            checkpoint=None if trained_before else checkpoint_of(context),
            progress=progress,
            fast_path=fast_path,
        )
        training = watch.read(training_set.n_samples)
    else:
        trained, training = finished.trained, Timing("train", finished.seconds, training_set.n_samples)
    watch = Stopwatch("save")
    # After a checkpoint the watch saw only the rest of the training; its own stages count the earlier attempts too.
    seconds = max(training.seconds, sum(trained.seconds.values()))
    model_hash = store_model(context, training_set, trained, seconds)
    if trained_before:
        _require_same_model(context, model_hash)
        return context
    save_optimizers(context, trained, model_hash)
    saving = replace(watch.read(), n_bytes=stored_bytes(context, training_set, trained, model_hash, seconds))
    with committing(context, model_hash, finished):
        committed = _commit(context, training_set, trained, model_hash, [training, saving], recorded)
    checkpoint_of(context).remove()
    if finished is not None:
        finished.file.remove()
    return committed


def remake_model(context: TriggerContext) -> None:
    """Train the model of a trained trigger again and store it, with its optimizer states, if it is the recorded one.

    Raises ``NotReproducible`` for another model, which is not stored, and errors of training.
    """
    recorded, training_set = context.model, context.training_set
    if recorded is None or training_set is None:
        raise RunError(f"trigger {context.trigger.partition_key} is {context.trigger.state}: it has no model to make again")
    if files_at(path := context.platform.home / training_set.path).size(path) is None:
        training_set = select_training_set(context)
    previous = None if context.previous is None else previous_model(context, context.previous)
    trained = fit(context, training_set, previous=previous, checkpoint=None)
    found = context.platform.models_of(context.spec).id_of(trained.state_dict)
    if found != recorded.hash:
        raise NotReproducible("model", recorded.hash, found)
    store_model(context, training_set, trained, recorded.seconds or sum(trained.seconds.values()))
    save_optimizers(context, trained, recorded.hash)


def recorded_seconds(context: TriggerContext) -> float | None:
    """Look up the training seconds of the same trigger in the run that ``costs_from`` names; None where it names none.

    The same trigger is the one with the same key, else the one with the same ordinal.

    Raises:
        RunError: that run has neither, so the replay's decisions would depend on this machine.
    """
    source = context.run.options.get("costs_from")
    if source is None:
        return None
    trigger = context.trigger
    with context.platform.transaction() as conn:
        models = list_models(conn, int(source))
        same = next((model for model in models if model.key == trigger.key), None)
        same = same or next((model for model in models if model.ordinal == trigger.ordinal), None)
        if same is None:
            raise RunError(
                f"trigger {trigger.partition_key}: run {source} (costs_from) trained no model at key {trigger.key} and has no "
                f"trigger {trigger.ordinal}; replay no further than it went, or begin a replay without costs_from"
            )
        # Catalogs of before 0.2 have models without their seconds.
        return measured_seconds(conn, same.run_id, same.trigger_id) if same.seconds is None else same.seconds


def measured_seconds(conn: sa.Connection, run_id: int, trigger_id: int) -> float:
    """Sum the ledger's seconds of selecting, training and saving a trigger."""
    seconds = seconds_by_stage(conn, run_id, trigger_id)
    return sum(seconds.get(stage, 0.0) for stage in _COST_STAGES)


def _skip(context: TriggerContext, reason: str | None) -> None:
    with context.platform.transaction() as conn:
        hold(conn, context.trigger)
        finish(conn, context.trigger, "skipped", reason)


def _require_same_model(context: TriggerContext, model_hash: str) -> None:
    recorded = context.model
    if recorded is None or recorded.hash != model_hash:
        raise RunError(
            f"trigger {context.trigger.partition_key}: training again gave model {model_hash}, "
            f"recorded {recorded.hash if recorded else 'none'}; code, libraries, threads or hardware changed"
        )


def stored_bytes(context: TriggerContext, row: TrainingSetRow, trained: TrainedModel, model_hash: str, seconds: float) -> int:
    """Bytes of a model that was saved; it is saved again where retention removed the equal one of an earlier run since."""
    store = context.platform.models_of(context.spec)
    try:
        return store.size(model_hash)
    except UnknownModel:
        return store.size(store_model(context, row, trained, seconds))


def model_values(context: TriggerContext, row: TrainingSetRow, trained: TrainedModel, model_hash: str) -> dict[str, Any]:
    """Columns of a trained model's row, but for its seconds."""
    initial = initial_model(context, trained)
    return {
        "hash": model_hash,
        "previous_hash": None if context.previous is None else context.previous.hash,
        "n_samples": row.n_samples,
        "train_start": row.time_min,
        "train_end": row.time_max,
        "architecture": trained.architecture,
        "losses": trained.losses,
        "curve": trained.curve,
        "training": trained.record() | ({} if initial is None else {"initial_model": initial}),
    }


def _commit(
    context: TriggerContext,
    row: TrainingSetRow,
    trained: TrainedModel,
    model_hash: str,
    timings: Sequence[Timing],
    recorded: float | None,
) -> TriggerContext:
    trigger = context.trigger
    values = model_values(context, row, trained, model_hash)
    with context.platform.transaction() as conn:
        # First: a deletion under way is waited for, and nobody should wait for the run's row because of it.
        block_deletions(conn, context.run.dataset_id)
        run = get_run(conn, context.run.id, lock=True)
        hold(conn, trigger)
        require_present(context, row)
        require_base(conn, context, run)
        block_model_removals(conn)
        stored_bytes(context, row, trained, model_hash, timings[0].seconds)
        for timing in timings:
            record_timing(conn, run.id, trigger.id, trigger.attempt, timing)
        seconds = measured_seconds(conn, run.id, trigger.id) if recorded is None else recorded
        model: ModelRow = insert_model(conn, trigger.id, values | {"seconds": seconds})
        finished = finish(conn, trigger, "trained")
        policy = pipeline_policy(context.spec)
        policy.load_state_dict(run.policy_state)
        policy.model_trained(ModelTrained(trigger.key, row.n_samples, seconds))
        # The first model of a run is its champion at once: triggers in the same batch may be judged by it.
        first = {"champion_model": model_hash} if context.spec.promotion is not None and not context.earlier_models else {}
        run = move_run(conn, run, policy_state=policy.state_dict(), previous_model=model_hash, **first)
    return context.with_model(run, finished, model)
