"""Training of one model, with the same bits for the same seed and threads."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from modyn_dagster.errors import ConfigError
from modyn_dagster.progress import ProgressCallback
from modyn_dagster.reproducibility.determinism import reproducible, restored_generators
from modyn_dagster.reproducibility.devices import current_device
from modyn_dagster.spec.learning.trainers import TrainerSpec
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.checkpoint.checkpointer import Checkpointer, fingerprint, training_environment
from modyn_dagster.training.checkpoint.file import CheckpointFile
from modyn_dagster.training.data import PreviousModel, Task, TrainedModel, TrainingData, check_task
from modyn_dagster.training.inputs.batches import Batches
from modyn_dagster.training.inputs.dataset_statistics import DatasetStatistics, measure_dataset
from modyn_dagster.training.inputs.device import fabric_for
from modyn_dagster.training.inputs.reading import place_finder
from modyn_dagster.training.loop.agreement import agreed_environment, begin_alike, draw_apart, end_alike, require_team
from modyn_dagster.training.loop.epochs import Epochs
from modyn_dagster.training.loop.final_weights import EarlyStopping, calibration_loss
from modyn_dagster.training.loop.fitting import fit_trainer
from modyn_dagster.training.loop.holdout import Division, Irreducible
from modyn_dagster.training.loop.initial_weights import initial_network, n_outputs_of, require_finite
from modyn_dagster.training.loop.sampling import sampling_of
from modyn_dagster.training.loop.steps import Steps
from modyn_dagster.training.module import architecture_of
from modyn_dagster.training.objectives.build import build_objective
from modyn_dagster.training.parsing.parser import Parsing
from modyn_dagster.training.team.shares import Shares
from modyn_dagster.training.team.team import Team
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
    team: Team | None = None,
) -> TrainedModel:
    """Train one model.

    Training starts from the ``previous`` model (callers pass it where the spec says ``use_previous_model``), else from
    ``initial`` weights, else from scratch. Initial weights must fit the model; of those of a pretrained one
    (``spec.is_pretrained``, without ``initial_weights``) the ones that fit are taken over. Standardisation is always fitted to
    this training set. ``calibrate`` are the samples of early stopping. The result depends on these arguments and the hardware
    alone, not on ``data.fast_path`` or the process.

    ``checkpoint`` is the file for the state, written as ``spec.checkpoint`` says. A file of the same training (the same
    arguments, libraries and hardware) resumes it, with the bits of an uninterrupted training. Callers resolve a schedule of
    downsampling with ``spec.at``.

    ``team`` are the ranks of ``spec.ranks``, all of which call this with the same arguments, and get the same model;
    ``train_in_ranks`` does so.

    ``source`` names the pipeline in errors: ``ConfigError`` for an invalid spec, ``WrongShape``, ``NonFiniteLoss`` and other
    ``TrainingError`` for failures during the training.
    """
    check_task(spec, task.kind, source=source)
    if spec.early_stopping is not None and calibrate is None:
        rule = "needs samples that are not trained on: give the dataset's `split` a share `calibrate`"
        raise ConfigError(source, "training.early_stopping", "(on)", rule)
    if isinstance(spec.model, TrainerSpec):
        given: dict[str, Any] = {"seed": seed, "threads": threads, "source": source, "previous": previous}
        return fit_trainer(spec, data, task=task, progress=progress, **given)
    require_team(spec, team, source=source)
    shares = None if team is None else Shares(team, source)
    # The first use imports modules that draw from generators.
    with restored_generators():
        fabric = fabric_for(spec, source=source)
    parsing = Parsing(spec.parser, source, place_finder(data.reader), tags=spec.tags)
    with (
        closing(parsing),
        reproducible(seed, threads=threads, deterministic=spec.deterministic),
        current_device(fabric.device),
        torch.enable_grad(),
    ):
        watch = Stopwatch()
        environment = agreed_environment(training_environment(fabric.device, threads=threads), team)
        sets = {"train": data, "calibrate": calibrate}
        fingerprint_of = partial(fingerprint, spec, sets, previous or initial, task, seed=seed, surroundings=environment)
        saver = Checkpointer(checkpoint, spec.checkpoint, fingerprint_of, team)
        state = saver.load()
        relabeling = Relabeling(spec.label_transform, task.kind, source, spec.task)
        dataset_task, task = task, relabeling.task(task)
        division = Division.of(spec, data, task, seed=seed, source=source)
        statistics = measure_dataset(spec, division.data, task, parsing, relabeling, previous)
        objective = build_objective(spec, statistics.seen, source=source)
        n_outputs = n_outputs_of(spec, task, statistics, previous) if objective is None else objective.n_outputs
        network, report = initial_network(spec, statistics, n_outputs, previous, initial, source)
        begin_alike(spec, network, shares, source=source)
        place: dict[str, Any] = {"device": fabric.device, "sharing": shares, "objective": objective}
        batches = Batches(statistics, network, n_outputs, watch=watch, **place)
        others = [_side_batches(part, statistics, network, n_outputs, place) for part in (division.aside, calibrate)]
        steps = Steps(spec, network, fabric, statistics.reading, n_outputs, objective, shares)
        if previous is not None and spec.carry_optimizer:
            steps.take_over_states(previous.optimizers)
        judge = replace(dataset_task, n_classes=n_outputs)
        irreducible = Irreducible(partial(train, team=team), spec, judge, threads, source, saver, fabric.device)
        sampler = sampling_of(division, spec, batches, steps.model, others[0], irreducible, seed=seed, resumed=state is not None)
        stopping = None
        if spec.early_stopping is not None and others[1] is not None:
            loss = calibration_loss(others[1], spec, steps.model, source)
            stopping = EarlyStopping(spec.early_stopping, loss, network, steps.average)
        epochs = Epochs(spec, sampler, steps, stopping, device=fabric.device, watch=watch, progress=progress, team=team)
        draw_apart(shares, seed)
        if state is not None:
            epochs.load_state_dict(state)
        watch.lap("prepare")
        epochs.run(saver)
        require_finite(network, steps.n_steps, source)
        weights = steps.weights()
        end_alike(team, weights)
        watch.lap("finish")
    return TrainedModel(
        state_dict=weights,
        architecture=architecture_of(
            spec,
            statistics.reading.features.layout,
            n_outputs,
            task.kind,
            given=dataset_task.kind,
            seen=statistics.seen,
            n_measures=None if objective is None else objective.n_measures,
        ),
        losses=epochs.curve.epochs,
        curve=epochs.curve.points,
        n_steps=steps.n_steps,
        n_samples=len(data),
        seconds=dict(watch.seconds),
        optimizers=steps.optimizer_states() if spec.carry_optimizer else None,
        calibration_losses=stopping.losses if stopping is not None else [],
        surroundings=environment,
        epochs=watch.epochs,
        pretrained=None if report is None else report.to_json(),
    )


def _side_batches(
    data: TrainingData | None, statistics: DatasetStatistics, network: Any, n_outputs: int, place: Mapping[str, Any]
) -> Batches | None:
    """Build batches of samples beside the training set; None without samples."""
    if data is None:
        return None
    side = replace(statistics, reading=replace(statistics.reading, data=data), cached=None)
    return Batches(side, network, n_outputs, **place)
