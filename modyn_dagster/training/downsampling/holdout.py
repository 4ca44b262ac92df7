"""What is set aside of a training set, and losses of models that never saw a sample."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fastpath import TrainingSet
from modyn_dagster.errors import TrainingError
from modyn_dagster.randomness import rng_for
from modyn_dagster.training.checkpoint import CheckpointFile
from modyn_dagster.training.checkpoint_parts import Part
from modyn_dagster.training.data import TrainedModel, TrainingData
from modyn_dagster.training.losses import SampleLoss
from modyn_dagster.training.predictor import build_predictor
from modyn_dagster.training.targets import targets_of, truth_of

Int64 = npt.NDArray[np.int64]
#: Samples per read while losses are computed.
_CHUNK = 1024

#: Trains a model on some of the data; where a file is given, that training can be gone on with.
TrainOn = Callable[[TrainingData, CheckpointFile | None], TrainedModel]
#: Finds something out, or knows it from before a kill: of the first or the second model.
Keep = Callable[[Part, Callable[[CheckpointFile | None], Tensor]], Tensor]


def split(data: TrainingData, share: float, seed: int) -> tuple[TrainingData, TrainingData]:
    """What is trained on, and what is set aside: at least one sample each, both in the order of the set."""
    n = len(data)
    if n < 2:
        raise TrainingError(f"a training set of {n} sample cannot be split for downsampling")
    aside = min(n - 1, max(1, round(share * n)))
    order = rng_for(seed, "downsampling", "holdout").permutation(n)
    return _part(data, np.sort(order[aside:])), _part(data, np.sort(order[:aside]))


def irreducible_losses(
    train_on: TrainOn,
    loss: SampleLoss,
    data: TrainingData,
    aside: TrainingData | None,
    *,
    seed: int,
    threads: int,
    source: str,
    keep: Keep = lambda _, find: find(None),
) -> Tensor:
    """Of every sample of ``data`` by a model trained on ``aside``, or else on the half that it is not in: ``float32[n]``."""

    def by_model_of(other: TrainingData, scored: TrainingData, checkpoint: CheckpointFile | None) -> Tensor:
        return _losses(train_on(other, checkpoint), scored, loss, threads=threads, source=source)

    if aside is not None:
        return keep("0", partial(by_model_of, aside, data))
    order = rng_for(seed, "downsampling", "twin").permutation(len(data))
    halves = [np.sort(order[: len(data) // 2]), np.sort(order[len(data) // 2 :])]
    if not len(halves[0]):
        raise TrainingError(f"{source}: a training set of one sample cannot be split for irreducible losses")
    found = torch.empty(len(data))
    parts: list[Part] = ["0", "1"]
    for part, (scored, other) in zip(parts, (halves, halves[::-1]), strict=True):
        found[torch.from_numpy(scored)] = keep(part, partial(by_model_of, _part(data, other), _part(data, scored)))
    return found


def _part(data: TrainingData, positions: Int64) -> TrainingData:
    keys, weights = data.chosen.take(positions)
    return replace(data, chosen=TrainingSet.of(keys, weights))


def _losses(model: TrainedModel, data: TrainingData, loss: SampleLoss, *, threads: int, source: str) -> Tensor:
    predict = build_predictor(model.architecture, model.state_dict, threads=threads, source=source)
    parts = []
    try:
        for start in range(0, len(data), _CHUNK):
            keys = data.chosen.slice(start, min(len(data), start + _CHUNK)).keys
            samples = predict.judged(data.reader.read(keys))
            truth = truth_of(samples, predict.kind, source=source)
            targets = targets_of(truth, keys, predict.kind, predict.n_outputs, source=source)
            parts.append(loss(torch.from_numpy(predict(samples)), torch.from_numpy(targets)).detach())
    finally:
        predict.close()
    return torch.cat(parts)
