"""The training of one trigger: batches in, weights out, the same bits for the same seed and threads."""

import math
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from modyn_dagster.errors import ConfigError, NonFiniteLoss, TrainingError
from modyn_dagster.spec.pipeline import HOW_FIELDS
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.batches import Batch, Batches
from modyn_dagster.training.check import check_task
from modyn_dagster.training.curve import LossCurve
from modyn_dagster.training.data import PreviousModel, Task, TrainedModel, TrainingData
from modyn_dagster.training.device import fabric_for
from modyn_dagster.training.downsampling.scoring import gradients_at
from modyn_dagster.training.losses import SampleLoss, build_loss, check_outputs, weighted_mean
from modyn_dagster.training.network import Network, build_network, call_body
from modyn_dagster.training.optimizers import build_optimizer
from modyn_dagster.training.parsing.parsing import Parsing
from modyn_dagster.training.progress import ProgressCallback, TrainingProgress
from modyn_dagster.training.reading import Reading, places_of
from modyn_dagster.training.reproducible import reproducible, restored_generators
from modyn_dagster.training.sampling import Irreducible, Model, Parts, sampling_of
from modyn_dagster.training.stopwatch import Stopwatch
from modyn_dagster.training.survey import Survey, survey
from modyn_dagster.training.user_code import user_code

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def train(
    spec: TrainingSpec,
    data: TrainingData,
    *,
    task: Task,
    seed: int,
    threads: int,
    source: str,
    previous: PreviousModel | None = None,
    progress: ProgressCallback | None = None,
) -> TrainedModel:
    """Train one model.

    ``previous`` is the model to start from (callers pass it where the spec says ``use_previous_model``); None starts from
    scratch. Standardisation is fitted to this training set either way. The result depends on the arguments and the
    hardware, neither on ``data.fast_path`` nor on anything the process did before. A schedule of
    downsampling is for whoever knows the trigger (``spec.at``). ``source`` names the pipeline
    in errors: ``ConfigError`` for what the spec cannot mean, ``WrongShape``, ``NonFiniteLoss`` and other
    ``TrainingError`` for what happens on the way.
    """
    check_task(spec, task.kind, source=source)
    # Its first use imports much, which draws from generators and must not count as training.
    with restored_generators():
        fabric = fabric_for(spec, source=source)
    parsing = Parsing(spec.parser, source, places_of(data.reader))
    with closing(parsing), reproducible(seed, threads=threads, deterministic=spec.deterministic), torch.enable_grad():
        watch = Stopwatch()
        parts = Parts.of(spec, data, task, seed=seed, source=source)
        found = survey(spec, parts.data, task, parsing)
        n_outputs = _n_outputs(task, found, previous)
        network = _initial_network(spec, found, n_outputs, previous, source)
        batches = Batches(found, network, n_outputs, device=fabric.device)
        steps = _Steps(spec, network, fabric, found.reading, n_outputs)
        kept = None
        if parts.aside is not None:
            reading = replace(found.reading, data=parts.aside)
            kept = Batches(replace(found, reading=reading, cached=None), network, n_outputs, device=fabric.device)
        others = Irreducible(train, spec, replace(task, n_classes=n_outputs), threads, source)
        sampler = sampling_of(parts, spec, batches, steps.model, kept, others, seed=seed)
        watch.lap("prepare")
        curve = LossCurve(sampler.n_steps)
        n_steps = 0
        for epoch in range(spec.epochs):
            for batch in sampler.epoch(epoch, watch):
                watch.lap("data")
                n_steps += 1
                loss = steps.step(batch, n_steps, watch)
                curve.step(loss, weight=batch.weight)
                if sampler.listens:
                    sampler.trained(steps.gradients(batch))
                    watch.lap("select")
                if progress is not None:
                    progress(TrainingProgress(epoch + 1, spec.epochs, n_steps, curve.n_steps, loss))
            curve.end_epoch()
        curve.close()
        _require_finite(network, n_steps, source)
        state = {name: tensor.detach() for name, tensor in network.to("cpu").state_dict().items()}
        watch.lap("finish")
    architecture = _architecture(spec, task, found, n_outputs)
    return TrainedModel(state, architecture, curve.epochs, curve.points, n_steps, len(data), dict(watch.seconds))


class _Steps:
    """The moving parts of a training, set up on their device."""

    def __init__(self, spec: TrainingSpec, network: Network, fabric: "Fabric", reading: Reading, n_outputs: int) -> None:
        self._fabric, self._source, self._n_outputs = fabric, reading.source, n_outputs
        self._layout = reading.features.layout
        self._loss: SampleLoss = build_loss(spec, reading.kind, source=reading.source)
        network.train()
        optimizer = build_optimizer(spec.optimizer, network.body.parameters(), source=reading.source)
        self._model: nn.Module
        self._model, self._optimizer = fabric.setup(network.body, optimizer)
        self._outputs = torch.empty(0)

    @property
    def model(self) -> Model:
        """As samples are judged by before they are trained on."""
        return Model(self._model, self._call, self._loss)

    def gradients(self, batch: Batch) -> Tensor:
        """Of the last step's losses at the outputs, ``float[b, n_outputs]``."""
        return gradients_at(self._outputs.float(), batch.targets, self._loss)[1]

    def step(self, batch: Batch, number: int, watch: Stopwatch) -> float:
        """One optimizer step; returns the loss before it."""
        self._optimizer.zero_grad()
        loss = self._forward(batch)
        value = float(loss.detach())
        watch.lap("forward")
        if not math.isfinite(value):
            raise NonFiniteLoss(number, value, batch.keys.tolist())
        with user_code(f"{self._source}: training.model: the backward pass"):
            self._fabric.backward(loss)
        watch.lap("backward")
        with user_code(f"{self._source}: training.optimizer: the optimizer"):
            self._optimizer.step()
        watch.lap("step")
        return value

    def _forward(self, batch: Batch) -> Tensor:
        loss = f"{self._source}: training.loss: the loss"
        outputs = self._call(batch)
        self._outputs = outputs.detach()
        with user_code(loss):
            return weighted_mean(self._loss(outputs, batch.targets), batch.weights, what=loss, divisor=batch.divisor)

    def _call(self, batch: Batch) -> Tensor:
        model = f"{self._source}: training.model: the model"
        with user_code(model):
            returned = call_body(self._model, batch.inputs, self._layout)
            return check_outputs(returned, (len(batch.weights), self._n_outputs), what=model)


def _n_outputs(task: Task, found: Survey, previous: PreviousModel | None) -> int:
    if task.kind == "target":
        return 1
    if task.n_classes is not None:
        return max(2, task.n_classes)
    known = int(previous.architecture["n_outputs"]) if previous is not None else 0
    return max(2, found.n_seen, known)


def _initial_network(spec: TrainingSpec, found: Survey, n_outputs: int, previous: PreviousModel | None, source: str) -> Network:
    network = build_network(spec, found.reading.features.layout, n_outputs, source=source)
    if previous is not None:
        _load_previous(network, previous, found, n_outputs, source)
    for name, scaler in network.scalers().items():
        scaler.fit(found.moments[name])
    return network


def _load_previous(network: Network, previous: PreviousModel, found: Survey, n_outputs: int, source: str) -> None:
    layout = found.reading.features.layout.to_json()
    if previous.architecture["features"] != layout:
        rule = f"the previous model saw other features: {previous.architecture['features']}, now {layout}"
        raise ConfigError(source, "training.use_previous_model", True, rule)
    if previous.architecture["n_outputs"] != n_outputs:
        rule = (
            f"the previous model has {previous.architecture['n_outputs']} outputs, this training set needs {n_outputs}; "
            "pin `classes` or `n_classes` in the dataset's label"
        )
        raise ConfigError(source, "training.use_previous_model", True, rule)
    try:
        network.load_state_dict(previous.state_dict)
    except RuntimeError as error:
        rule = f"the previous model has other weights: {error}"
        raise ConfigError(source, "training.use_previous_model", True, rule) from error


def _require_finite(network: Network, n_steps: int, source: str) -> None:
    # The last step is followed by no loss that would show it.
    for name, parameter in network.named_parameters():
        if not torch.isfinite(parameter).all():
            raise TrainingError(f"{source}: {name} is not finite after step {n_steps}; lower the learning rate")


def _architecture(spec: TrainingSpec, task: Task, found: Survey, n_outputs: int) -> dict[str, Any]:
    included = {"model", "parser", "standardize", "precision", "deterministic"}
    content = spec.model_dump(mode="json", include=included, exclude=HOW_FIELDS["training"])
    return content | {"features": found.reading.features.layout.to_json(), "n_outputs": n_outputs, "task": task.kind}
