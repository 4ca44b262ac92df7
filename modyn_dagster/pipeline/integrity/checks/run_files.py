"""Checks of a run's files: training sets, states of online strategies, optimizer states and predictions."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.catalog.results.predictions import PredictionFileRow, list_predictions, predictions_of_triggers
from modyn_dagster.catalog.results.training_sets import TrainingSetRow, find_training_set, list_training_sets
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers
from modyn_dagster.errors import CorruptFile
from modyn_dagster.files.mounting import files_at
from modyn_dagster.pipeline.integrity.checks.check import Check, file_findings
from modyn_dagster.pipeline.integrity.finding import Finding, finding_of
from modyn_dagster.pipeline.integrity.pacing import Pace
from modyn_dagster.pipeline.integrity.remake.run_files import remake_model, remake_predictions, remake_training_set
from modyn_dagster.pipeline.platform import Platform, optimizers_path
from modyn_dagster.selection import TrainingSet
from modyn_dagster.training.checkpoint.file import CheckpointFile

#: States of triggers whose training set stays; that of another one is selected again with the next attempt.
_DONE = ("trained", "skipped")


def training_set_checks(platform: Platform, run: RunRow) -> Iterator[Check]:
    """Check the training sets of a run, and the states of its online strategy."""
    with platform.transaction() as conn:
        triggers = {trigger.id: trigger for trigger in list_triggers(conn, run.id, _DONE)}
        rows = list_training_sets(conn, run.id)
    for row in rows:
        if row.trigger_id not in triggers or row.removed_at is not None:
            continue
        trigger = triggers[row.trigger_id]
        state = row.details.get("state")
        paths = [platform.home / row.path, *([platform.home / state["path"]] if state else [])]
        findings = partial(_training_set_findings, platform.home, owner_of(run, trigger), row)
        remake = partial(remake_training_set, platform, run, trigger)
        holds = partial(_has_training_set, platform, row)
        yield Check(["training-sets", "selector-states"], paths, findings, holds, remake, trigger.ordinal)


def optimizer_checks(platform: Platform, run: RunRow) -> Iterator[Check]:
    """Check the optimizer states that were saved with the models of a run."""
    with platform.transaction() as conn:
        triggers = {trigger.id: trigger for trigger in list_triggers(conn, run.id)}
        models = list_models(conn, run.id)
    for model in models:
        path = platform.home / optimizers_path(run.id, model.ordinal)
        is_stored = partial(_is_stored, path)
        if is_stored():
            trigger = triggers[model.trigger_id]
            findings = partial(_optimizer_findings, platform.home, path, owner_of(run, trigger), model)
            remake = partial(remake_model, platform, run, trigger)
            yield Check(["optimizers"], [path], findings, is_stored, remake, trigger.ordinal)


def prediction_checks(platform: Platform, run: RunRow) -> Iterator[Check]:
    """Check the prediction files of a run."""
    with platform.transaction() as conn:
        triggers = {trigger.id: trigger for trigger in list_triggers(conn, run.id)}
        rows = predictions_of_triggers(conn, list(triggers))
    remedy = "`modyn-dagster repair` predicts the same samples again; else restore a backup of MODYN_HOME/predictions"
    for row in rows:
        if row.removed_at is None:
            trigger, path = triggers[row.trigger_id], platform.home / row.path
            findings = partial(file_findings, "predictions", platform.home, path, row.checksum, owner_of(run, trigger), remedy)
            holds = partial(_has_predictions, platform, row)
            yield Check(["predictions"], [path], findings, holds, partial(remake_predictions, platform, run, trigger, row))


def owner_of(run: RunRow, trigger: TriggerRow) -> str:
    """Text that names the trigger."""
    return f"pipeline {run.pipeline}, {run.mode} trigger {trigger.partition_key}"


def _training_set_findings(home: Path, owner: str, row: TrainingSetRow, pace: Pace) -> Iterator[Finding]:
    path = home / row.path
    remedy = "`modyn-dagster repair` selects the same samples again; else restore a backup of MODYN_HOME/training_sets"
    try:
        # Its own digests leave out padding, on which no content depends.
        if files_at(path).renewed(path):
            pace.took(files_at(path).size(path) or 0)
        TrainingSet.open(path, row.checksum).verify()
    except CorruptFile as error:
        yield finding_of("training-sets", home, error, owner, remedy)
    if (state := row.details.get("state")) is not None:
        yield from file_findings("selector-states", home, home / state["path"], state["checksum"], owner, remedy, pace)


def _is_stored(path: Path) -> bool:
    return files_at(path).size(path) is not None


def _has_training_set(platform: Platform, row: TrainingSetRow) -> bool:
    with platform.transaction() as conn:
        return find_training_set(conn, row.trigger_id) == row


def _optimizer_findings(home: Path, path: Path, owner: str, model: ModelRow, pace: Pace) -> Iterator[Finding]:
    pace.took(files_at(path).size(path) or 0)
    if CheckpointFile(path).load(model.hash) is None:
        error = CorruptFile(path, f"the optimizer states of model {model.hash}", "none, or those of another model")
        remedy = "`modyn-dagster repair` trains the model again and saves them; else restore a backup of MODYN_HOME/optimizers"
        yield finding_of("optimizers", home, error, owner, remedy)


def _has_predictions(platform: Platform, row: PredictionFileRow) -> bool:
    with platform.transaction() as conn:
        return row in list_predictions(conn, row.trigger_id)
