"""Trainings that a worker has finished, as files of safetensors and JSON that the committing process takes up."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import torch

from modyn_dagster.catalog.results.training_sets import TrainingSetRow
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.models import task_of
from modyn_dagster.pipeline.platform import ahead_path
from modyn_dagster.pipeline.stages.model.training import calibration_keys, training_spec
from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.spec.pipeline import HOW_FIELDS
from modyn_dagster.training import CheckpointFile, TrainedModel, import_paths
from modyn_dagster.training.checkpoint.checkpointer import training_environment
from modyn_dagster.training.pretrained.weights_file import pretrained_files
from modyn_dagster.values.digest import bytes_digest, checksum_of, json_digest, source_digest

_FIELDS: Final = tuple(field.name for field in fields(TrainedModel))


@dataclass(frozen=True, slots=True)
class FinishedTraining:
    """A trained model, the wall seconds of its training, and the file that it was read from."""

    trained: TrainedModel
    seconds: float
    file: CheckpointFile


def finished_file(context: TriggerContext) -> CheckpointFile:
    """File of a trigger's finished training; it appears as a whole, and a damaged one is not read."""
    return CheckpointFile(context.platform.home / ahead_path(context.run.id, context.trigger.ordinal))


def save_finished(context: TriggerContext, row: TrainingSetRow, trained: TrainedModel, seconds: float) -> None:
    """Write a trained model for the process that commits it. Raises ``WriteFailed``."""
    state = {name: getattr(trained, name) for name in _FIELDS}
    finished_file(context).save(training_digest(context, row), {"trained": state, "seconds": seconds})


def load_finished(context: TriggerContext, row: TrainingSetRow) -> FinishedTraining | None:
    """Read the finished training of exactly this training; None where there is none, or a damaged one."""
    file = finished_file(context)
    state: Mapping[str, Any] | None = file.load(training_digest(context, row))
    return None if state is None else FinishedTraining(TrainedModel(**state["trained"]), state["seconds"], file)


def training_digest(context: TriggerContext, row: TrainingSetRow) -> str:
    """Digest of all that a training from scratch depends on: spec, task, samples, seed, threads, code and environment."""
    source, trigger = f"pipeline {context.run.pipeline}", context.trigger.ordinal
    spec, project = training_spec(context), context.platform.project.folder
    task = task_of(spec, context.view)
    initial = None if spec.initial_weights is None else project / spec.initial_weights
    pretrained = [checksum_of(path) for path in pretrained_files(spec, project, source=source)]
    calibrate = calibration_keys(context, row)
    return json_digest(
        {
            "spec": spec.model_dump(mode="json", exclude=HOW_FIELDS["training"]),
            "task": [task.kind, task.n_classes, sorted(task.exclude)],
            "training_set": row.checksum,
            "calibrate": None if calibrate is None else bytes_digest(calibrate.tobytes()),
            "initial_weights": None if initial is None or not initial.is_file() else checksum_of(initial),
            **({"pretrained": pretrained} if pretrained else {}),
            "seed": seed_for(context.run.seed, "train", trigger),
            "code": source_digest(path for _, path in import_paths(spec)),
            "environment": training_environment(torch.device("cpu"), threads=context.run.threads),
        }
    )
