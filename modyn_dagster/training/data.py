"""What training is given: keys, weights, a way to read samples, and what is to be learnt."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import TrainingError
from modyn_dagster.ingestion.samples import Samples
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.training import TaskKind

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class TrainingData:
    """A training set and its reader.

    Attributes:
        keys: ``uint64[n]``, in the order of the training set.
        weights: ``float32[n]``, finite and positive.
        read: samples of some of these keys, in the order asked for.
    """

    keys: KeyArray
    weights: npt.NDArray[np.float32]
    read: Callable[[KeyArray], Samples]

    def __post_init__(self) -> None:
        if len(self.keys) == 0:
            raise TrainingError("the training set is empty; there is nothing to train on")
        if self.weights.shape != self.keys.shape:
            raise TrainingError(f"the training set has {len(self.keys)} keys and weights of shape {self.weights.shape}")
        unusable = ~(np.isfinite(self.weights) & (self.weights > 0))
        if unusable.any():
            first = int(np.argmax(unusable))
            raise TrainingError(
                f"the weight of key {self.keys[first]} is {self.weights[first]}, weights must be finite and above 0"
            )

    def __len__(self) -> int:
        return len(self.keys)


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
    """The model to start from: its weights, and the ``architecture`` recorded with them."""

    state_dict: Mapping[str, "Tensor"]
    architecture: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """What a training left.

    Attributes:
        state_dict: weights and standardisation, on the CPU.
        architecture: what builds the module again (``build_predictor``); JSON-serialisable.
        losses: weighted mean loss of each epoch.
        curve: at most 1,000 points ``(step, mean loss since the point before)``, steps counted from 1.
        n_steps: optimizer steps taken.
        n_samples: size of the training set.
        seconds: host time per stage: prepare, data, to_device, forward, backward, step, finish.
    """

    state_dict: dict[str, "Tensor"]
    architecture: dict[str, Any]
    losses: list[float]
    curve: list[tuple[int, float]]
    n_steps: int
    n_samples: int
    seconds: dict[str, float]
