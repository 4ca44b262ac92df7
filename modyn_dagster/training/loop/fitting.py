"""Training by a trainer: the training set as arrays, one fit, and the model as its bytes."""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
import psutil
import torch

from modyn_dagster.errors import TrainingError
from modyn_dagster.keys import KeyArray
from modyn_dagster.progress import ProgressCallback, TrainingProgress
from modyn_dagster.reproducibility.determinism import reproducible
from modyn_dagster.spec.tasks.task import GROUP, RELEVANCE, TASKS
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.checkpoint.checkpointer import training_environment
from modyn_dagster.training.data import PreviousModel, Task, TrainedModel, TrainingData
from modyn_dagster.training.inputs.dataset_statistics import DatasetStatistics, chunk_of, measure_dataset
from modyn_dagster.training.inputs.group_order import numbered
from modyn_dagster.training.inputs.reading import EpochOrder, LoadedBatch, place_finder
from modyn_dagster.training.loop.initial_weights import load_previous, n_outputs_of
from modyn_dagster.training.memory import empty_aligned
from modyn_dagster.training.models.losses import LOSSES
from modyn_dagster.training.models.network import Network, build_network
from modyn_dagster.training.module import architecture_of
from modyn_dagster.training.parsing.parser import Parsing
from modyn_dagster.training.telemetry import LossCurve, Stopwatch
from modyn_dagster.training.trainers.body import TrainerBody
from modyn_dagster.training.trainers.protocol import Inputs, TrainingSamples, Weights
from modyn_dagster.training.trainers.refusals import require_no_loop
from modyn_dagster.training.transforms.labels import Relabeling, Truth, targets_of

#: Samples by which the loss of a fitted model is measured: the first of the training set, at most so many.
_MEASURED: Final = 4096
#: Those of a ranking, whose loss has memory for all pairs of a group.
_RANKED: Final = 1024


def fit_trainer(
    spec: TrainingSpec,
    data: TrainingData,
    *,
    task: Task,
    seed: int,
    threads: int,
    source: str,
    previous: PreviousModel | None,
    progress: ProgressCallback | None,
) -> TrainedModel:
    """Fit the model of a trainer; arguments and result are those of ``train``.

    A model that continues a previous one keeps its standardisation. Weights are divided by their mean; equal ones are none.

    Raises:
        ConfigError: the spec asks for something that needs the training loop.
        TrainingError: the trainer fails, or the training set does not fit into memory.
    """
    require_no_loop(spec, source=source)
    parsing = Parsing(spec.parser, source, place_finder(data.reader))
    with closing(parsing), reproducible(seed, threads=threads, deterministic=spec.deterministic), torch.no_grad():
        watch = Stopwatch()
        relabeling = Relabeling(spec.label_transform, task.kind, source, spec.task)
        task = relabeling.task(task)
        statistics = measure_dataset(spec, data, task, parsing, relabeling, previous)
        n_outputs = n_outputs_of(spec, task, statistics, previous)
        layout = statistics.reading.features.layout
        network = build_network(spec, layout, n_outputs, source=source)
        if previous is not None:
            load_previous(network, previous, statistics, n_outputs, source)
        else:
            for name, scaler in network.scalers().items():
                scaler.fit(statistics.moments[name])
        if network.encode is not None:
            network.encode.keep(statistics.reading.features.encoders)
        body, samples = cast(TrainerBody, network.body), FittedSamples(statistics, network, n_outputs)
        watch.lap("prepare")
        rounds = _Rounds(progress)
        body.fit(samples.chunks() if body.in_chunks else samples.whole(), seed, rounds, continued=bool(spec.use_previous_model))
        watch.lap("fit")
        loss = _loss(network, samples, source)
        rounds.end(loss)
        architecture = architecture_of(spec, layout, n_outputs, task.kind, given=relabeling.given, seen=layout)
        watch.lap("finish")
    library, version = body.library
    return TrainedModel(
        state_dict={name: tensor.clone() for name, tensor in network.state_dict().items()},
        architecture=architecture | {"library": {"name": library, "version": version}},
        losses=[loss],
        curve=rounds.curve,
        n_steps=rounds.n_rounds,
        n_samples=len(data),
        seconds=dict(watch.seconds),
        surroundings=training_environment(torch.device("cpu"), threads=threads) | {"library": f"{library} {version}"},
    )


@dataclass(frozen=True, slots=True)
class FittedSamples:
    """Training set of a trainer, read and standardised as a network's is.

    Attributes:
        statistics: statistics of the training set.
        network: network with its standardisation.
        n_outputs: outputs of the model.
    """

    statistics: DatasetStatistics
    network: Network
    n_outputs: int

    def chunks(self) -> Generator[tuple[TrainingSamples, Weights], None, None]:
        """Yield the training set in chunks of at most 8,192 samples, each with its weights."""
        mean = self._mean_weight()
        for loaded, inputs, truth in self._prepared():
            weights = None if mean is None else loaded.weights.astype(np.float64) / mean
            yield TrainingSamples(loaded.keys.copy(), inputs, truth), weights

    def whole(self) -> Iterator[tuple[TrainingSamples, Weights]]:
        """Yield the whole training set; ``TrainingError`` where it is larger than the memory that is free."""
        data, reading = self.statistics.reading.data, self.statistics.reading
        n, width = len(data), reading.features.layout.inputs[0].n_features
        keys, weights = np.empty(n, np.uint64), np.empty(n, np.float64)
        truths: Truth = np.empty(n, np.int64) if reading.kind == "class" else np.empty(n, np.float64)
        # A ranking is put in the order of its groups, in further arrays.
        copies = 2 if reading.relabeling.exact else 1
        if reading.relabeling.exact:
            truths = np.empty((n, len((RELEVANCE, GROUP))), np.float64)
        matrix: Inputs | None = None
        end = 0
        for loaded, inputs, truth in self._prepared():
            if matrix is None:
                require_room(n, copies * width * inputs.itemsize, psutil.virtual_memory().available, source=reading.source)
                matrix = cast(Inputs, empty_aligned((n, width), inputs.dtype))
            start, end = end, end + len(loaded.keys)
            matrix[start:end], truths[start:end] = inputs, truth
            keys[start:end], weights[start:end] = loaded.keys, loaded.weights
        mean = self._mean_weight()
        assert matrix is not None  # noqa: S101 - a training set has samples
        normed = None if mean is None else weights / mean
        if reading.relabeling.exact:
            yield _by_group(keys, matrix, truths, normed)
        else:
            yield TrainingSamples(keys, matrix, truths), normed

    def _prepared(self) -> Iterator[tuple[LoadedBatch, Inputs, Truth]]:
        """Yield chunks in order: as loaded, their inputs ``[n, values]``, and checked classes or targets."""
        reading, prepare = self.statistics.reading, self.network.preparation(empty_aligned)
        cached = self.statistics.cached
        for loaded in cached if cached is not None else reading(EpochOrder(self._chunk()), lambda batch: batch):
            targets_of(loaded.truth, loaded.keys, reading.kind, self.n_outputs, source=reading.source)
            # Preparation takes arrays over, and what is cached is read again for the loss.
            (inputs,) = prepare({name: array.copy() for name, array in loaded.inputs.items()}).values()
            yield loaded, cast(Inputs, inputs.reshape(len(inputs), -1)), loaded.truth

    def _chunk(self) -> int:
        data = self.statistics.reading.data
        example = data.reader.read(data.chosen.slice(0, 1).keys)
        return chunk_of(example, self.statistics.reading.features(example))

    def _mean_weight(self) -> float | None:
        """Mean of the weights; None where all are equal."""
        parts = [partition.weights for partition in self.statistics.reading.data.chosen.partitions()]
        if len({float(bound) for part in parts for bound in (part.min(), part.max())}) == 1:
            return None
        total = sum(float(part.sum(dtype=np.float64)) for part in parts)
        return total / len(self.statistics.reading.data)


def _by_group(keys: KeyArray, inputs: Inputs, truths: Truth, weights: Weights) -> tuple[TrainingSamples, Weights]:
    """Put the samples of a ranking in the order of their groups."""
    groups = numbered(truths[:, GROUP])
    order = np.argsort(groups, kind="stable")
    samples = TrainingSamples(keys[order], inputs[order], truths[order, RELEVANCE], groups[order])
    return samples, None if weights is None else weights[order]


def require_room(n: int, row: int, free: int, *, source: str) -> None:
    """Raise ``TrainingError`` where ``n`` samples of ``row`` bytes are more than ``free`` bytes of memory."""
    # Beside the inputs: keys, weights, and the truth.
    needed = n * (row + 24)
    if needed > free:
        raise TrainingError(
            f"{source}: training.model: {n:,} samples of {row:,} bytes need {needed:,} bytes of memory at once, and {free:,} are "
            "free; select fewer (selection.limit), or use a trainer that takes chunks (river, or your own with partial_fit)"
        )


class _Rounds:
    """Loss curve and progress of a fit, from the rounds that its trainer reports."""

    def __init__(self, progress: ProgressCallback | None) -> None:
        self._progress, self._curve = progress, LossCurve(1)
        self.n_rounds = 0

    def __call__(self, number: int, rounds: int, loss: float) -> None:
        if self.n_rounds == 0:
            self._curve = LossCurve(rounds)
        self.n_rounds = number
        self._curve.step(loss, weight=1.0)
        self._show(number, rounds, loss)

    def end(self, loss: float) -> None:
        """Show the loss of the fitted model where there were no rounds."""
        self._curve.close()
        if self.n_rounds == 0:
            self._show(1, 1, loss)

    @property
    def curve(self) -> list[tuple[int, float]]:
        """Points ``(round, loss)``."""
        return self._curve.points

    def _show(self, number: int, rounds: int, loss: float) -> None:
        if self._progress is not None:
            self._progress(TrainingProgress(1, 1, number, rounds, loss))


def _loss(network: Network, samples: FittedSamples, source: str) -> float:
    """Mean loss of the stored model on the first samples of its training set; ``TrainingError`` unless it is finite."""
    kind, ranks = samples.statistics.reading.kind, samples.statistics.reading.relabeling.exact
    loss, most = LOSSES[TASKS["ranking" if ranks else kind].losses[0]], _RANKED if ranks else _MEASURED
    total, n = 0.0, 0
    with closing(samples.chunks()) as chunks:
        for part, _ in chunks:
            outputs = network.body(torch.from_numpy(part.inputs[: most - n]))
            truth = torch.from_numpy(part.truth[: len(outputs)])
            losses = loss(outputs, truth if kind == "class" or ranks else truth.float())
            total, n = total + float(losses.double().sum()), n + len(losses)
            if n == most:
                break
    if not np.isfinite(total):
        raise TrainingError(f"{source}: training.model: the fitted model predicts values that are not finite on its training set")
    return total / n
