"""What training is given: keys, weights, a way to read samples, and what is to be learnt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fastpath import TrainingSet
from modyn_dagster.errors import TrainingError
from modyn_dagster.ingestion.samples import Samples
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.training import TaskKind
from modyn_dagster.training.fast_path import FastPath

if TYPE_CHECKING:
    from torch import Tensor


class Reader(Protocol):
    """Reads samples by key. ``SampleReader`` is one; any other is called by the thread that trains."""

    def read(self, keys: KeyArray) -> Samples:
        """Samples in the order of ``keys``."""


@dataclass(frozen=True, slots=True)
class TrainingData:
    """A training set and a reader of its samples.

    Attributes:
        chosen: keys, and weights that are finite and positive; mapped from its file or in memory.
        reader: of all its samples.
        fast_path: how they are read; changes no result.
    """

    chosen: TrainingSet
    reader: Reader
    fast_path: FastPath = FastPath()  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        if len(self.chosen) == 0:
            raise TrainingError("the training set is empty; there is nothing to train on")
        for partition in self.chosen.partitions():
            unusable = ~(np.isfinite(partition.weights) & (partition.weights > 0))
            if unusable.any():
                first = int(np.argmax(unusable))
                weight = f"the weight of key {partition.keys[first]} is {partition.weights[first]}"
                raise TrainingError(f"{weight}, weights must be finite and above 0")

    def __len__(self) -> int:
        return len(self.chosen)


@dataclass(frozen=True, slots=True)
class Task:
    """What is learnt.

    Attributes:
        kind: a class index, or a regression target.
        n_classes: how many classes there are; None: as many as the training set shows (at least two, and no fewer than
            the previous model knew).
        exclude: columns that ``features: numeric`` leaves out: time, label, attributes.
    """

    kind: TaskKind
    n_classes: int | None = None
    exclude: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class PreviousModel:
    """The model to start from: its weights, the ``architecture`` recorded with them, and its optimizers' states if asked for."""

    state_dict: Mapping[str, "Tensor"]
    architecture: Mapping[str, Any]
    optimizers: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """What a training left.

    Attributes:
        state_dict: weights and standardisation, on the CPU.
        architecture: what builds the module again (``build_predictor``); JSON-serialisable.
        losses: weighted mean loss of each epoch.
        curve: at most 1,000 points ``(batch, mean loss since the point before)``, batches counted from 1.
        n_steps: optimizer steps taken.
        n_samples: size of the training set.
        seconds: host time per stage: prepare, data (waiting for batches), to_device, select (downsampling), forward, backward,
            step, calibrate (early stopping), finish. What a killed training took up to its checkpoint is among it.
        optimizers: their states, where the spec says ``carry_optimizer``.
        calibration_losses: of each epoch, where early stopping watched them.
        epochs: of each epoch ``n_samples`` trained on and ``seconds`` per stage.
        surroundings: libraries, hardware, thread count and settings that decide bits beside spec, data and seed.
    """

    state_dict: dict[str, "Tensor"]
    architecture: dict[str, Any]
    losses: list[float]
    curve: list[tuple[int, float]]
    n_steps: int
    n_samples: int
    seconds: dict[str, float]
    optimizers: list[dict[str, Any]] | None = None
    calibration_losses: list[float] = field(default_factory=list)
    surroundings: dict[str, Any] = field(default_factory=dict)
    epochs: list[dict[str, Any]] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """What is written down of the training itself, JSON-serialisable."""
        return {
            "n_steps": self.n_steps,
            "epochs": self.epochs,
            "calibration_losses": self.calibration_losses,
            "surroundings": self.surroundings,
        }
