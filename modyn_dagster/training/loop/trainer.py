"""The training of one trigger: batches in, weights out, the same bits for the same seed and threads."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from modyn_dagster.determinism import reproducible, restored_generators
from modyn_dagster.errors import ConfigError
from modyn_dagster.progress import ProgressCallback
from modyn_dagster.spec.pipeline import HOW_FIELDS
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.checkpoint.checkpointer import Checkpointer, fingerprint, surroundings
from modyn_dagster.training.checkpoint.file import CheckpointFile
from modyn_dagster.training.data import PreviousModel, Task, TrainedModel, TrainingData, check_task
from modyn_dagster.training.inputs.batches import Batches
from modyn_dagster.training.inputs.dataset_statistics import DatasetStatistics, survey
from modyn_dagster.training.inputs.device import fabric_for
from modyn_dagster.training.inputs.reading import place_finder
from modyn_dagster.training.loop.epochs import Epochs
from modyn_dagster.training.loop.final_weights import EarlyStopping, calibration_loss
from modyn_dagster.training.loop.holdout import Irreducible, Parts
from modyn_dagster.training.loop.initial_weights import initial_network, n_outputs_of, require_finite
from modyn_dagster.training.loop.sampling import sampling_of
from modyn_dagster.training.loop.steps import Steps
from modyn_dagster.training.parsing.parser import Parsing
from modyn_dagster.training.telemetry import Stopwatch
from modyn_dagster.training.transforms.labels import Relabeling


def train(  # noqa: PLR0913 - all but the first two are given by name
    spec: TrainingSpec,
    data: TrainingData,
    *,
    task: Task,
    seed: int,
    threads: int,
    source: str,
    previous: PreviousModel | None = None,
    initial: Mapping[str, Tensor] | None = None,
    calibrate: TrainingData | None = None,
    checkpoint: CheckpointFile | None = None,
    progress: ProgressCallback | None = None,
) -> TrainedModel:
    """Train one model.

    ``previous`` is the model to start from (callers pass it where the spec says ``use_previous_model``); without one training
    starts from ``initial`` weights, or from scratch. Standardisation is fitted to this training set either way. ``calibrate``
    are the samples that early stopping watches. The result depends on these arguments and the hardware, neither on
    ``data.fast_path`` nor on anything the process did before.

    ``checkpoint`` is where the state is written as ``spec.checkpoint`` says. When it holds the state of the same training (the
    same arguments, libraries and hardware), that goes on, and ends with the bits it would have had without the break. A
    schedule of downsampling is for whoever knows the trigger (``spec.at``).

    ``source`` names the pipeline in errors: ``ConfigError`` for what the spec cannot mean, ``WrongShape``, ``NonFiniteLoss``
    and other ``TrainingError`` for what happens on the way.
    """
    check_task(spec, task.kind, source=source)
    if spec.early_stopping is not None and calibrate is None:
        rule = "needs samples that are not trained on: give the dataset's `split` a share `calibrate`"
        raise ConfigError(source, "training.early_stopping", "(on)", rule)
    # Its first use imports much, which draws from generators and must not count as training.
    with restored_generators():
        fabric = fabric_for(spec, source=source)
    parsing = Parsing(spec.parser, source, place_finder(data.reader))
    with closing(parsing), reproducible(seed, threads=threads, deterministic=spec.deterministic), torch.enable_grad():
        watch = Stopwatch()
        around = surroundings(fabric.device, threads=threads)
        sets = {"train": data, "calibrate": calibrate}
        marks = partial(fingerprint, spec, sets, previous or initial, task, seed=seed, surroundings=around)
        saver = Checkpointer(checkpoint, spec.checkpoint, marks)
        state = saver.load()
        relabeling = Relabeling(spec.label_transform, task.kind, source)
        given, task = task, relabeling.task(task)
        parts = Parts.of(spec, data, task, seed=seed, source=source)
        found = survey(spec, parts.data, task, parsing, relabeling)
        n_outputs = n_outputs_of(task, found, previous)
        network = initial_network(spec, found, n_outputs, previous, initial, source)
        batches = Batches(found, network, n_outputs, device=fabric.device, watch=watch)
        others = [_batches_of(each, found, network, n_outputs, fabric.device) for each in (parts.aside, calibrate)]
        steps = Steps(spec, network, fabric, found.reading, n_outputs)
        if previous is not None and spec.carry_optimizer:
            steps.carry(previous.optimizers)
        irreducible = Irreducible(train, spec, replace(given, n_classes=n_outputs), threads, source, saver)
        sampler = sampling_of(parts, spec, batches, steps.model, others[0], irreducible, seed=seed, resumed=state is not None)
        stopping = None
        if spec.early_stopping is not None and others[1] is not None:
            loss = calibration_loss(others[1], spec, steps.model, source)
            stopping = EarlyStopping(spec.early_stopping, loss, network, steps.average)
        epochs = Epochs(spec, sampler, steps, stopping, device=fabric.device, watch=watch, progress=progress)
        if state is not None:
            epochs.load_state_dict(state)
        watch.lap("prepare")
        epochs.walk(saver)
        require_finite(network, steps.n_steps, source)
        weights = {name: tensor.detach() for name, tensor in network.to("cpu").state_dict().items()}
        watch.lap("finish")
    return TrainedModel(
        state_dict=weights,
        architecture=_architecture(spec, task, found, n_outputs),
        losses=epochs.curve.epochs,
        curve=epochs.curve.points,
        n_steps=steps.n_steps,
        n_samples=len(data),
        seconds=dict(watch.seconds),
        optimizers=steps.optimizer_states() if spec.carry_optimizer else None,
        calibration_losses=stopping.losses if stopping is not None else [],
        surroundings=around,
        epochs=watch.epochs,
    )


def _batches_of(
    data: TrainingData | None, found: DatasetStatistics, network: Any, n_outputs: int, device: torch.device
) -> Batches | None:
    """The batches of samples beside those that are trained on; None where there are none."""
    if data is None:
        return None
    beside = replace(found, reading=replace(found.reading, data=data), cached=None)
    return Batches(beside, network, n_outputs, device=device)


def _architecture(spec: TrainingSpec, task: Task, found: DatasetStatistics, n_outputs: int) -> dict[str, Any]:
    included = {"model", "parser", "standardize", "precision", "deterministic", "transforms", "label_transform"}
    content = spec.model_dump(mode="json", include=included, exclude=HOW_FIELDS["training"])
    if spec.transforms:
        content["seen"] = found.seen.to_json()
    if spec.label_transform is not None:
        content["label"] = found.reading.relabeling.given
    return content | {"features": found.reading.features.layout.to_json(), "n_outputs": n_outputs, "task": task.kind}
