"""The stage ``model``: train on the training set of a trigger, store the model, move the run on."""

from dataclasses import replace

from fastpath import TrainingSet
from modyn_dagster.catalog.deletions import hold_deletions
from modyn_dagster.catalog.models import ModelRow, architecture_of, find_model, insert_model
from modyn_dagster.catalog.runs import get_run, move_run
from modyn_dagster.catalog.timings import Timing, record_timing
from modyn_dagster.catalog.training_sets import TrainingSetRow
from modyn_dagster.catalog.triggers import finish, hold
from modyn_dagster.errors import DeletedKey, RunError, TrainingError
from modyn_dagster.ingestion.split import CALIBRATE
from modyn_dagster.ingestion.storage_errors import storage_errors
from modyn_dagster.keys import KeyRange
from modyn_dagster.pipeline.context import Stopwatch, TriggerContext
from modyn_dagster.pipeline.costs import measured_seconds, recorded_seconds
from modyn_dagster.pipeline.policies import policy_of
from modyn_dagster.pipeline.select import open_training_set
from modyn_dagster.pipeline.storing import store_model
from modyn_dagster.pipeline.task import by_number, task_of
from modyn_dagster.pipeline.training_files import checkpoint_of, load_initial, load_optimizers, save_optimizers
from modyn_dagster.pipeline.weights import weights_of
from modyn_dagster.randomness import seed_for
from modyn_dagster.training import CheckpointFile, FastPath, PreviousModel, TrainedModel, TrainingData, train
from modyn_dagster.training.progress import ProgressCallback
from modyn_dagster.triggering import ModelTrained


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
    trained = _train(context, training_set, progress, fast_path)
    training = watch.read(training_set.n_samples)
    watch = Stopwatch("save")
    model_hash = store_model(context, trained, training_set, previous_model(context), training.seconds)
    if context.trigger.state == "trained":
        return _same_model(context, model_hash)
    save_optimizers(context, trained, model_hash)
    saving = replace(watch.read(), n_bytes=context.platform.models_of(context.spec).size(model_hash))
    model = _commit(context, training_set, trained, model_hash, [training, saving], recorded)
    checkpoint_of(context).remove()
    return model


def previous_model(context: TriggerContext) -> str | None:
    """Hash of the model this trigger starts from, if the spec says so and there is one."""
    if not context.spec.training.use_previous_model:
        return None
    with context.platform.transaction() as conn:
        if context.trigger.state == "trained":
            found = find_model(conn, context.trigger.id)
            return found.previous_hash if found else None
        return get_run(conn, context.run.id).previous_model


def fit(
    context: TriggerContext,
    row: TrainingSetRow,
    previous: PreviousModel | None,
    *,
    checkpoint: CheckpointFile | None,
    progress: ProgressCallback | None = None,
    fast_path: FastPath = FastPath(),  # noqa: B008 - frozen
) -> TrainedModel:
    """Train on the training set of a trigger, from the previous model if the spec says so; nothing is stored."""
    chosen = open_training_set(context, row)
    source = f"pipeline {context.run.pipeline}"
    with storage_errors():
        return train(
            by_number(context.spec.training.at(context.trigger.ordinal), context.view, source),
            TrainingData(chosen, context.view.reader, fast_path),
            task=task_of(context.view, source),
            previous=previous,
            initial=None if previous else load_initial(context, source),
            calibrate=_calibration(context, row, fast_path),
            checkpoint=checkpoint,
            seed=seed_for(context.run.seed, "train", context.trigger.ordinal),
            threads=context.run.threads,
            source=source,
            progress=progress,
        )


def _train(context: TriggerContext, row: TrainingSetRow, progress: ProgressCallback | None, fast_path: FastPath) -> TrainedModel:
    previous = previous_model(context)
    return fit(
        context,
        row,
        _load(context, previous) if previous else None,
        # Training a trained trigger again is a check, and begins at the beginning.
        checkpoint=None if context.trigger.state == "trained" else checkpoint_of(context),
        progress=progress,
        fast_path=fast_path,
    )


def _load(context: TriggerContext, model_hash: str) -> PreviousModel:
    with context.platform.transaction() as conn:
        architecture = architecture_of(conn, model_hash)
    weights = weights_of(context.platform, context.spec, model_hash)
    return PreviousModel(weights, architecture, load_optimizers(context, model_hash))


def _calibration(context: TriggerContext, row: TrainingSetRow, fast_path: FastPath) -> TrainingData | None:
    """The calibration samples of the window, where early stopping watches them."""
    if context.spec.training.early_stopping is None:
        return None
    keys = context.view.keys_on(CALIBRATE, KeyRange(row.after, row.until))
    if len(keys) == 0:
        window = f"keys after {row.after} up to {row.until}"
        raise TrainingError(f"early_stopping: the window ({window}) has no sample on the split's side `calibrate`")
    return TrainingData(TrainingSet.of(keys), context.view.reader, fast_path)


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
        hold_deletions(conn, context.run.dataset_id)
        run = get_run(conn, context.run.id, lock=True)
        hold(conn, trigger)
        _require_present(context, row)
        for timing in timings:
            record_timing(conn, run.id, trigger.id, trigger.attempt, timing)
        seconds = measured_seconds(conn, run.id, trigger.id) if recorded is None else recorded
        insert_model(conn, trigger.id, values | {"seconds": seconds})
        finish(conn, trigger, "trained")
        policy = policy_of(context.spec)
        policy.load_state_dict(run.policy_state)
        policy.model_trained(ModelTrained(trigger.key, row.n_samples, seconds))
        move_run(conn, run, policy_state=policy.state_dict(), previous_model=model_hash)
        committed = find_model(conn, trigger.id)
    assert committed is not None, "just inserted"  # noqa: S101 - for the type checker
    return committed
