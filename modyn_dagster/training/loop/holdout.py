"""Samples held out for a downsampling policy, and irreducible losses from models that never saw a sample."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fastpath import TrainingSet
from modyn_dagster.errors import TrainingError
from modyn_dagster.reproducibility.randomness import rng_for, seed_for
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.checkpoint.checkpointer import Checkpointer
from modyn_dagster.training.checkpoint.file import CheckpointFile
from modyn_dagster.training.checkpoint.parts import Part
from modyn_dagster.training.data import Task, TrainedModel, TrainingData
from modyn_dagster.training.downsampling.plan import Plan
from modyn_dagster.training.models.network import SampleLoss
from modyn_dagster.training.predictor import build_predictor
from modyn_dagster.training.transforms.labels import targets_of, truth_of

Int64 = npt.NDArray[np.int64]
#: Samples per read while losses are computed.
_CHUNK = 1024

#: Trains a model on some of the data, resumable with a checkpoint file.
TrainOn = Callable[[TrainingData, CheckpointFile | None], TrainedModel]
#: Computes a value of the first or second model, or loads it after a kill.
Keep = Callable[[Part, Callable[[CheckpointFile | None], Tensor]], Tensor]


def split(data: TrainingData, share: float, seed: int) -> tuple[TrainingData, TrainingData]:
    """Split a training set into a part to train on and a held-out part, at least one sample each, both in the set's order."""
    n = len(data)
    if n < 2:
        raise TrainingError(f"a training set of {n} sample cannot be split for downsampling")
    aside = min(n - 1, max(1, round(share * n)))
    order = rng_for(seed, "downsampling", "holdout").permutation(n)
    return _part(data, np.sort(order[aside:])), _part(data, np.sort(order[:aside]))


def irreducible_losses(  # noqa: PLR0913 - all but the first four are given by name
    train_on: TrainOn,
    loss: SampleLoss,
    data: TrainingData,
    aside: TrainingData | None,
    *,
    seed: int,
    threads: int,
    source: str,
    device: torch.device = torch.device("cpu"),  # noqa: B008 - a value
    keep: Keep = lambda _, find: find(None),
) -> Tensor:
    """Compute the loss of every sample of ``data`` under a model trained on ``aside``, or on the other half: ``float32[n]``."""

    def by_model_of(other: TrainingData, scored: TrainingData, checkpoint: CheckpointFile | None) -> Tensor:
        return _losses(train_on(other, checkpoint), scored, loss, threads=threads, source=source, device=device)

    if aside is not None:
        return keep("0", partial(by_model_of, aside, data))
    order = rng_for(seed, "downsampling", "twin").permutation(len(data))
    halves = [np.sort(order[: len(data) // 2]), np.sort(order[len(data) // 2 :])]
    if not len(halves[0]):
        raise TrainingError(f"{source}: a training set of one sample cannot be split for irreducible losses")
    losses = torch.empty(len(data))
    parts: list[Part] = ["0", "1"]
    for part, (scored, other) in zip(parts, (halves, halves[::-1]), strict=True):
        losses[torch.from_numpy(scored)] = keep(part, partial(by_model_of, _part(data, other), _part(data, scored)))
    return losses


def _part(data: TrainingData, positions: Int64) -> TrainingData:
    keys, weights = data.chosen.take(positions)
    return replace(data, chosen=TrainingSet.of(keys, weights))


def _losses(
    model: TrainedModel, data: TrainingData, loss: SampleLoss, *, threads: int, source: str, device: torch.device
) -> Tensor:
    predict = build_predictor(model.architecture, model.state_dict, device=str(device), threads=threads, source=source)
    parts = []
    try:
        for start in range(0, len(data), _CHUNK):
            keys = data.chosen.slice(start, min(len(data), start + _CHUNK)).keys
            samples = predict.judged(data.reader.read(keys))
            truth = truth_of(samples, predict.kind, source=source)
            targets = targets_of(truth, keys, predict.kind, predict.n_outputs, source=source)
            # The loss is where the main training is; a loss of user code may have tensors of its own there.
            outputs, expected = torch.from_numpy(predict(samples)).to(device), torch.from_numpy(targets).to(device)
            parts.append(loss(outputs, expected).detach().cpu())
    finally:
        predict.close()
    return torch.cat(parts)


@dataclass(frozen=True)
class Division:
    """Division of a training set into samples to train on and held-out samples.

    Attributes:
        plan: the policy; None without downsampling.
        data: samples to train on.
        aside: held-out samples; None without.
    """

    plan: Plan | None
    data: TrainingData
    aside: TrainingData | None

    @classmethod
    def of(cls, spec: TrainingSpec, data: TrainingData, task: Task, *, seed: int, source: str) -> "Division":
        """Divide a training set; ``ConfigError`` for a policy that cannot be built or does not fit the task."""
        stage = None if spec.downsampling is None else spec.downsampling.at(0)
        if stage is None:
            return cls(None, data, None)
        plan = Plan.of(stage, task.kind, epochs=spec.epochs, source=source)
        if not plan.holds_out:
            return cls(plan, data, None)
        return cls(plan, *split(data, stage.holdout.share, seed))


@dataclass(frozen=True)
class Irreducible:
    """Training of the models behind irreducible losses, with the spec of the main training but no downsampling.

    Attributes:
        train: ``modyn_dagster.training.train``.
        spec: spec of the main training.
        task: task with a class per output of its model.
        threads: number of computing threads.
        source: name of the pipeline, for errors.
        saver: checkpointer of the main training, which also keeps these models' states and losses.
        device: device of the main training, on which samples are judged too.
    """

    train: Callable[..., TrainedModel]
    spec: TrainingSpec
    task: Task
    threads: int
    source: str
    saver: Checkpointer
    device: torch.device

    def losses(self, plan: Plan, division: "Division", loss: SampleLoss, seed: int) -> Tensor:
        """Compute the irreducible loss of every sample to train on, ``float32[n]``."""
        # Budgets and early stopping belong to the main training alone.
        none = dict.fromkeys(["downsampling", "early_stopping", "max_steps", "max_samples", "initial_weights", "pretrained"])
        changes = none | {"carry_optimizer": False, "epochs": plan.spec.holdout.epochs or self.spec.epochs}
        spec, own = self.spec.model_copy(update=changes), seed_for(seed, "downsampling", "irreducible")
        given = {"task": self.task, "threads": self.threads, "source": self.source}

        def train_on(data: TrainingData, checkpoint: CheckpointFile | None) -> TrainedModel:
            return self.train(spec, data, seed=own, checkpoint=checkpoint, **given)

        where: dict[str, Any] = {"seed": seed, "threads": self.threads, "source": self.source, "device": self.device}
        where["keep"] = self.saver.kept
        return irreducible_losses(train_on, loss, division.data, division.aside, **where)
