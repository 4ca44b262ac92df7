"""Protocol of trainers, which fit a model at once instead of in the training loop."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.training import TaskKind

#: Inputs of samples: ``float32[n, values]``, or float64 with ``precision: 64-true``.
Inputs = npt.NDArray[np.float32] | npt.NDArray[np.float64]
#: ``(round, rounds, loss)`` after each round of a fit, for progress bars and the loss curve; rounds count from 1.
Report = Callable[[int, int, float], None]


def report_nowhere(_round: int, _rounds: int, _loss: float) -> None:
    """Report to nobody."""


@dataclass(frozen=True, slots=True)
class LearningTask:
    """Task of a trainer.

    Attributes:
        kind: classes or a regression target.
        columns: names of the values of a sample, in the order of the inputs.
        n_outputs: number of classes; 1 for a target.
        threads: threads that may compute.
        source: name of the pipeline, for errors.
        continued: whether models continue earlier ones (``use_previous_model``).
        report: called after each round of a fit, if there are rounds.
        ranks: whether targets are relevances, by which the samples of a group are ranked.
    """

    kind: TaskKind
    columns: tuple[str, ...]
    n_outputs: int
    threads: int
    source: str
    continued: bool = False
    report: Report = report_nowhere
    ranks: bool = False


@dataclass(frozen=True, slots=True)
class TrainingSamples:
    """Samples to learn, in the order of their training set, which is that of their keys.

    Those of a ranking stand group behind group, by the first sample of each.

    Attributes:
        keys: ``uint64[n]``.
        inputs: ``[n, values]``, standardised if the spec says so.
        truth: classes ``int64[n]``, or targets ``float64[n]``.
        groups: numbers of the groups of a ranking, ``int64[n]``, ascending from 0; None for other tasks.
    """

    keys: KeyArray
    inputs: Inputs
    truth: npt.NDArray[np.int64] | npt.NDArray[np.float64]
    groups: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.keys)


#: Weights ``float64[n]`` with mean 1 over the training set; None where all samples weigh alike.
Weights = npt.NDArray[np.float64] | None


class Trainer(Protocol):
    """Fits models of one task, predicts by them, and turns them into bytes and back.

    The same samples, weights, previous model and seed must give the same bytes.

    A trainer may have ``partial_fit(model, samples, weights) -> model`` too. It is then given the training set in chunks of at
    most 8,192 samples: the first to ``fit``, the others to ``partial_fit``; so the set need not fit into memory.

    Attributes:
        takes_weights: whether ``fit`` can weigh samples.
        continues: whether ``fit`` can go on from a previous model.
        library: name and version of the library that fits, for the record of the model.
    """

    takes_weights: bool
    continues: bool
    library: tuple[str, str]

    def fit(self, samples: TrainingSamples, weights: Weights, previous: Any | None, seed: int) -> Any:
        """Fit a model, from a previous one if there is one; the previous one may be changed."""

    def predict(self, model: Any, inputs: Inputs) -> npt.NDArray[Any]:
        """Predict probabilities ``[n, n_outputs]`` of classes, or targets ``[n]``."""

    def to_bytes(self, model: Any) -> bytes:
        """Bytes of a model. They must not be a pickle."""

    def from_bytes(self, content: bytes) -> Any:
        """Model of ``to_bytes``: with the same predictions and the same bytes."""


_METHODS: Final = ("fit", "predict", "to_bytes", "from_bytes")


def require_trainer(trainer: Any, path: str, source: str) -> Trainer:
    """Check that an object of user code has the members of a trainer; ``ConfigError`` names the missing ones."""
    missing = [name for name in _METHODS if not callable(getattr(trainer, name, None))]
    missing += [name for name in ("takes_weights", "continues") if not isinstance(getattr(trainer, name, None), bool)]
    library = getattr(trainer, "library", None)
    if not (isinstance(library, tuple) and [type(part) for part in library] == [str, str]):
        missing.append("library")
    if missing:
        rule = f"must return a Trainer (docs/own_models.md): {type(trainer).__name__} lacks {', '.join(missing)}"
        raise ConfigError(source, "training.model.factory", path, rule)
    return trainer  # type: ignore[no-any-return]  # just looked at
