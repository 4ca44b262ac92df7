"""Stage ``model``: train on the training set of a trigger, store the model, move the run on."""

from dataclasses import replace
from typing import Final

import sqlalchemy as sa

from modyn_dagster.catalog.deletions import block_deletions
from modyn_dagster.catalog.results.models import ModelRow, find_model, insert_model, list_models
from modyn_dagster.catalog.results.training_sets import TrainingSetRow
from modyn_dagster.catalog.runs import get_run, move_run
from modyn_dagster.catalog.timings import Timing, record_timing, seconds_by_stage
from modyn_dagster.catalog.triggers import finish, hold
from modyn_dagster.errors import DeletedKey, RunError
from modyn_dagster.pipeline.context import Stopwatch, TriggerContext
from modyn_dagster.pipeline.stages.model.model_saving import store_model
from modyn_dagster.pipeline.stages.model.training import checkpoint_of, previous_model, save_optimizers, train_trigger
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set
from modyn_dagster.progress import ProgressCallback
from modyn_dagster.training import FastPath, TrainedModel
from modyn_dagster.triggering import ModelTrained
from modyn_dagster.triggering.build import pipeline_policy

#: What a policy is told: selecting and training, over all attempts. Evaluating costs the same whenever one trains.
_TOLD: Final = ("select", "train", "save")


def recorded_seconds(context: TriggerContext) -> float | None:
    """Seconds that the run named by ``costs_from`` was told for the same trigger; None where no run is named.

    The same trigger is the one with the same key, else the one with the same ordinal.

    Raises ``RunError`` where that run has neither: the replay's decisions would depend on this machine after all.
    """
    source = context.run.options.get("costs_from")
    if source is None:
        return None
    with context.platform.transaction() as conn:
        models = list_models(conn, int(source))
        trigger = context.trigger
        found = next((model for model in models if model.key == trigger.key), None)
        found = found or next((model for model in models if model.ordinal == trigger.ordinal), None)
        if found is None:
            raise RunError(
                f"trigger {trigger.partition_key}: run {source} (costs_from) trained no model at key {trigger.key} and has no "
                f"trigger {trigger.ordinal}; replay no further than it went, or begin a replay without costs_from"
            )
        return _told(conn, found)


def measured_seconds(conn: sa.Connection, run_id: int, trigger_id: int) -> float:
    """What the ledger says of selecting and training a trigger."""
    seconds = seconds_by_stage(conn, run_id, trigger_id)
    return sum(seconds.get(stage, 0.0) for stage in _TOLD)


def _told(conn: sa.Connection, model: ModelRow) -> float:
    # Models of before 0.2 do not say what their policies were told.
    return measured_seconds(conn, model.run_id, model.trigger_id) if model.seconds is None else model.seconds


def train_model(
    context: TriggerContext,
    training_set: TrainingSetRow,
    progress: ProgressCallback | None = None,
    fast_path: FastPath = FastPath(),  # noqa: B008 - frozen
) -> ModelRow | None:
    """Train the model of a claimed trigger and commit it while the claim holds; None when the training set is empty.

    On a trained trigger it trains again and must reach the same hash, or ``RunError``.
    """
    if training_set.n_samples == 0:
        _skip(context, training_set.details.get("skipped"))
        return None
    # Before training: a replay whose costs are not recorded need not train first to find out.
    recorded = recorded_seconds(context)
    watch = Stopwatch("train")
    trained = train_trigger(context, training_set, progress, fast_path)
    training = watch.read(training_set.n_samples)
    watch = Stopwatch("save")
    # Of a training that went on from a checkpoint the watch saw the end alone; its own stages count the attempts before, too.
    seconds = max(training.seconds, sum(trained.seconds.values()))
    model_hash = store_model(context, trained, training_set, previous_model(context), seconds)
    if context.trigger.state == "trained":
        return _same_model(context, model_hash)
    save_optimizers(context, trained, model_hash)
    saving = replace(watch.read(), n_bytes=context.platform.models_of(context.spec).size(model_hash))
    model = _commit(context, training_set, trained, model_hash, [training, saving], recorded)
    checkpoint_of(context).remove()
    return model


def _skip(context: TriggerContext, reason: str | None) -> None:
    with context.platform.transaction() as conn:
        hold(conn, context.trigger)
        finish(conn, context.trigger, "skipped", reason)


def _same_model(context: TriggerContext, model_hash: str) -> ModelRow:
    with context.platform.transaction() as conn:
        recorded = find_model(conn, context.trigger.id)
    if recorded is None or recorded.hash != model_hash:
        raise RunError(
            f"trigger {context.trigger.partition_key}: training again gave model {model_hash}, "
            f"recorded {recorded.hash if recorded else 'none'}; code, libraries, threads or hardware changed"
        )
    return recorded


def _require_present(context: TriggerContext, row: TrainingSetRow) -> None:
    """Raise ``DeletedKey`` when a sample was deleted while the model trained on it: no later model has seen it."""
    now = context.view.renewed()
    if now is context.view:
        return
    for partition in open_training_set(context, row).partitions():
        deleted = now.deleted.among(partition.keys)
        if deleted.any():
            raise DeletedKey(int(partition.keys[deleted.argmax()]), now.spec.name)


def _commit(
    context: TriggerContext,
    row: TrainingSetRow,
    trained: TrainedModel,
    model_hash: str,
    timings: list[Timing],
    recorded: float | None,
) -> ModelRow:
    trigger = context.trigger
    values = {
        "hash": model_hash,
        "previous_hash": previous_model(context),
        "n_samples": row.n_samples,
        "train_start": row.time_min,
        "train_end": row.time_max,
        "architecture": trained.architecture,
        "losses": trained.losses,
        "curve": trained.curve,
        "training": trained.record(),
    }
    with context.platform.transaction() as conn:
        # First: a deletion that goes on is waited for, and nobody should wait for the run's row because of it.
        block_deletions(conn, context.run.dataset_id)
        run = get_run(conn, context.run.id, lock=True)
        hold(conn, trigger)
        _require_present(context, row)
        for timing in timings:
            record_timing(conn, run.id, trigger.id, trigger.attempt, timing)
        seconds = measured_seconds(conn, run.id, trigger.id) if recorded is None else recorded
        insert_model(conn, trigger.id, values | {"seconds": seconds})
        finish(conn, trigger, "trained")
        policy = pipeline_policy(context.spec)
        policy.load_state_dict(run.policy_state)
        policy.model_trained(ModelTrained(trigger.key, row.n_samples, seconds))
        move_run(conn, run, policy_state=policy.state_dict(), previous_model=model_hash)
        committed = find_model(conn, trigger.id)
    assert committed is not None, "just inserted"  # noqa: S101 - for the type checker
    return committed
