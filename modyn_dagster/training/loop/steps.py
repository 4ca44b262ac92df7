"""Optimizer steps of a training: model, loss, optimizers and schedulers on their device."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from modyn_dagster.errors import NonFiniteLoss
from modyn_dagster.spec.learning.optimizers import optimizer_fields
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.downsampling.scoring import Model, gradients_at
from modyn_dagster.training.inputs.batch import Batch, Whole
from modyn_dagster.training.inputs.reading import Reading
from modyn_dagster.training.loop.final_weights import MovingAverage
from modyn_dagster.training.loop.optimizers import build_optimizers, carry_states
from modyn_dagster.training.loop.schedulers import Scheduler, TrainingLength
from modyn_dagster.training.loop.step_state import StepState
from modyn_dagster.training.models.losses import build_loss, weighted_mean
from modyn_dagster.training.models.network import Network, SampleLoss, call_body, check_outputs
from modyn_dagster.training.objectives.answering import answer
from modyn_dagster.training.objectives.objective import Objective
from modyn_dagster.training.team.sharding import local
from modyn_dagster.training.team.shares import Shares
from modyn_dagster.training.telemetry import Stopwatch
from modyn_dagster.training.user_code import user_code

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Steps:
    """Model, loss, optimizers, schedulers and moving average of a training.

    Args:
        spec: spec of the training.
        network: network to train, moved to the device of ``fabric``.
        fabric: device and precision.
        reading: reading of the training set, with the kind of task and the source for errors.
        n_outputs: outputs of the model.
        objective: makes the loss where the dataset has no label; otherwise None.
        shares: division of the batches among ranks; None for one process.
    """

    def __init__(
        self,
        spec: TrainingSpec,
        network: Network,
        fabric: "Fabric",
        reading: Reading,
        n_outputs: int,
        objective: Objective | None = None,
        shares: Shares | None = None,
    ) -> None:
        self._spec, self._network, self._shares, self._objective = spec, network, shares, objective
        self._source, self._n_outputs = reading.source, n_outputs if objective is None else objective.form.width
        self._layout = reading.features.layout
        self._loss: SampleLoss = build_loss(spec, reading.kind, source=reading.source) if objective is None else objective.loss
        self._scaler = getattr(fabric.strategy.precision, "scaler", None)
        if isinstance(self._loss, nn.Module):
            # Weights of classes and the like, in a loss of user code.
            fabric.to_device(self._loss)
        network.train()
        # Before the optimizers: some create their state at once, on the device of the parameters.
        sharding = None if shares is None else shares.sharding
        if sharding is None:
            fabric.to_device(network.body)
        decay = None if spec.pretrained is None else spec.pretrained.layer_decay
        self._optimizers = build_optimizers(spec.optimizers, network.body, source=reading.source, layer_decay=decay)
        body: Any = network.body if spec.compile is None else torch.compile(network.body, **spec.compile.model_dump())
        # In single precision, Fabric's wrappers only take time; in double precision they round the outputs to single.
        plain, self._double = spec.precision in ("32-true", "64-true"), spec.precision == "64-true"
        # A loss may hold tensors of its own, such as weights of classes; samples are scored by the given one.
        is_copied = self._double and isinstance(self._loss, nn.Module)
        self._exact: SampleLoss = copy.deepcopy(self._loss).double() if is_copied else self._loss  # type: ignore[attr-defined]
        wrap: Any = fabric.to_device if plain else fabric.setup_module
        self._model: nn.Module = body if sharding is not None else wrap(body)
        self._backward: Callable[[Tensor], object] = Tensor.backward if plain else fabric.backward
        self._average = None if spec.ema is None else MovingAverage(network.body, spec.ema.decay)
        self._schedulers: list[Scheduler] = []
        self._outputs = torch.empty(0)
        self._precision = precision = fabric.strategy.precision
        self._state = StepState(network, self._optimizers, self._schedulers, precision, self._average, self._exact, sharding)
        self.n_steps, self.n_pending, self._last_loss = 0, 0, 0.0

    @property
    def model(self) -> Model:
        """Model for scoring samples before they are trained on."""
        return Model(self._model, self._call, self._loss, None if self._shares is None else self._shares.team)

    @property
    def average(self) -> MovingAverage | None:
        """Moving average of the weights, if it becomes the model."""
        return self._average

    def schedule(self, length: TrainingLength) -> None:
        """Build the schedulers for a length of the training."""
        fields = optimizer_fields(len(self._spec.optimizers))
        for spec, optimizer, field in zip(self._spec.optimizers, self._optimizers, fields):
            if spec.scheduler is not None:
                scheduler = Scheduler(spec.scheduler, optimizer, length, field=f"{field}.scheduler", source=self._source)
                self._schedulers.append(scheduler)

    def gradients(self, batch: Batch) -> Tensor:
        """Gradients of the last batch's losses at the outputs, ``float[b, n_outputs]``."""
        return gradients_at(self._outputs.float(), batch.everything.targets, self._loss)[1]

    def step(self, batch: Batch, number: int, watch: Stopwatch) -> float:
        """Learn from batch ``number``; returns its loss before. The optimizers step with the last batch of ``accumulate``."""
        loss = self._forward(batch)
        value = self._last_loss = float(loss.detach())
        watch.lap("forward")
        if not math.isfinite(value):
            raise NonFiniteLoss(number, value, batch.everything.keys.tolist(), self._norms())
        if self.n_pending == 0:
            for optimizer in self._optimizers:
                optimizer.zero_grad()
        if self._spec.accumulate > 1:
            loss = loss * self._accumulation_weight(batch)
        if self._shares is not None and self._shares.idles(batch):
            # The scaler of half precision begins with the first loss that it sees.
            loss = loss if self._scaler is None else self._scaler.scale(loss)
        else:
            with user_code(f"{self._source}: training.model: the backward pass"):
                self._backward(loss)
        watch.lap("backward")
        self.n_pending += 1
        if self.n_pending == self._spec.accumulate:
            self._optimizer_step()
            watch.lap("step")
        return value

    def end_epoch(self, watch: Stopwatch) -> None:
        """Step with pending batches, and advance schedulers of epochs."""
        if self.n_pending:
            self._optimizer_step()
        for scheduler in self._schedulers:
            scheduler.after("epoch")
        watch.lap("step")

    def whole(self, state: dict[str, Any], *, kept: bool) -> dict[str, Any]:
        """Make weights in a state whole that are divided among ranks; see ``StepState``."""
        return self._state.whole(state, kept=kept)

    def weights(self) -> dict[str, Tensor]:
        """Return the network's weights, whole and on the CPU."""
        state = self._state.whole(dict(self._network.state_dict()))
        return {name: tensor.detach().to("cpu") for name, tensor in state.items()}

    def optimizer_states(self) -> list[dict[str, Any]]:
        """Return the state of every optimizer."""
        return self._state.whole(self._state.optimizer_states())

    def take_over_states(self, states: Sequence[Mapping[str, Any]] | None) -> None:
        """Take over the states of another training's optimizers; learning rates and other settings stay."""
        carry_states(self._optimizers, states, self._state.load_optimizer, source=self._source)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that later steps depend on, between two optimizer steps."""
        masks = {} if self._shares is None else {"masks": self._shares.masks.state}
        return {"n_steps": self.n_steps} | masks | self._state.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self.n_steps = state["n_steps"]
        if self._shares is not None:
            self._shares.masks.state = state["masks"]
        self._state.load_state_dict(state)

    def _forward(self, batch: Batch) -> Tensor:
        loss = f"{self._source}: training.loss: the loss"
        outputs = self._call(batch) if batch.whole is None else self._call_in_shares(batch, batch.whole)
        self._outputs, everything = outputs.detach(), batch.everything
        targets, weights = everything.targets, everything.weights
        if self._double:
            targets, weights = targets.double() if targets.is_floating_point() else targets, weights.double()
        with user_code(loss):
            return weighted_mean(self._exact(outputs, targets), weights, what=loss, divisor=batch.divisor)

    def _call_in_shares(self, batch: Batch, whole: Whole) -> Tensor:
        """Outputs for the samples of all ranks; a rank without samples computes none."""
        assert self._shares is not None  # noqa: S101 - for the type checker
        dtype = torch.float64 if self._double else torch.float32
        if self._shares.idles(batch):
            own = torch.empty(0, self._n_outputs, device=batch.targets.device)
        else:
            with self._shares.forward(whole):
                own = self._call(batch.share())
        return self._shares.outputs(own.to(dtype), whole)

    def _call(self, batch: Batch) -> Tensor:
        model = f"{self._source}: training.model: the model"
        # What a model makes in its forward pass is double too.
        with user_code(model), self._precision.forward_context() if self._double else nullcontext():
            if self._objective is not None:
                return answer(self._objective.form, self._model, batch.inputs, self._layout, len(batch.weights), what=model)
            returned = call_body(self._model, batch.inputs, self._layout)
            return check_outputs(returned, (len(batch.weights), self._n_outputs), what=model)

    def _accumulation_weight(self, batch: Batch) -> Tensor:
        """Weight of a batch's mean loss relative to the first batch it is accumulated with."""
        weights = batch.everything.weights
        weight = weights.sum() if batch.divisor is None else torch.full_like(weights[0], batch.divisor)
        if self.n_pending == 0:
            self._first, self._total = weight, torch.zeros_like(weight)
        self._total = self._total + weight
        return weight / self._first

    def _optimizer_step(self) -> None:
        """Step with every optimizer, as if the accumulated batches, and the shares of all ranks, were one."""
        if self._shares is not None:
            self._shares.add_up(self._network.body, self._last_loss)
        if self._spec.accumulate > 1:
            scale = self._first / self._total
            for gradient in self._gradients():
                gradient.mul_(scale.to(gradient.dtype))
        if self._spec.clip is not None:
            self._clip(self._spec.clip.norm, self._spec.clip.value)
        with user_code(f"{self._source}: training.optimizer: the optimizer"):
            for optimizer in self._optimizers:
                optimizer.step() if self._scaler is None else self._scaler.step(optimizer)
            if self._scaler is not None:
                self._scaler.update()
        for scheduler in self._schedulers:
            scheduler.after("batch")
        if self._average is not None:
            self._average.update()
        self.n_steps, self.n_pending = self.n_steps + 1, 0

    def _clip(self, norm: float | None, value: float | None) -> None:
        if self._scaler is not None:
            for optimizer in self._optimizers:
                self._scaler.unscale_(optimizer)
        if norm is not None and self._state.sharding is not None:
            self._state.sharding.clip(self._gradients(), norm)
        elif norm is not None:
            nn.utils.clip_grad_norm_(self._network.body.parameters(), norm)
        if value is not None:
            for gradient in self._gradients():
                gradient.clamp_(-value, value)

    def _gradients(self) -> list[Tensor]:
        """Gradients of all weights, or of those parts that this rank holds."""
        return [local(parameter.grad) for parameter in self._network.body.parameters() if parameter.grad is not None]

    def _norms(self) -> dict[str, float]:
        weights = [local(parameter.detach()) for parameter in self._network.body.parameters()]
        named = {"weights": weights, "the last gradient": self._gradients()}
        squares = {name: sum(float(part.double().square().sum()) for part in parts) for name, parts in named.items()}
        if self._state.sharding is not None:
            squares = {name: self._state.sharding.total(square) for name, square in squares.items()}
        return {name: math.sqrt(square) for name, square in squares.items()}
