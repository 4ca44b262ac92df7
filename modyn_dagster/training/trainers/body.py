"""Body of a network whose model a trainer has fitted: the bytes of the model are its only tensor."""

import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from modyn_dagster.errors import ConfigError, ModynError, TrainingError, WrongShape
from modyn_dagster.spec.learning.trainers import TrainerSpec
from modyn_dagster.training.trainers.protocol import Inputs, LearningTask, Report, TrainingSamples, Weights
from modyn_dagster.training.trainers.registry import build_trainer
from modyn_dagster.training.trainers.stored.pickles import refuse_pickle

logger = logging.getLogger(__name__)

#: Smallest probability: its logarithm is finite in float32.
_TINY: Final = float(np.finfo(np.float32).tiny)


class TrainerBody(nn.Module):
    """A fitted model of a trainer as a module, so that it is stored, loaded and asked as networks are.

    It returns the logarithms of probabilities, which are logits, or targets: ``float32[n, n_outputs]``.
    """

    content: Tensor

    def __init__(self, spec: TrainerSpec, task: LearningTask) -> None:
        super().__init__()
        self.register_buffer("content", torch.empty(0, dtype=torch.uint8))
        self._spec, self._task, self._trainer = spec, task, build_trainer(spec, task)
        self._model: Any = None
        self._what = f"{task.source}: training.model: {spec.name}"

    @property
    def in_chunks(self) -> bool:
        """True if the trainer takes a training set in chunks."""
        return callable(getattr(self._trainer, "partial_fit", None))

    @property
    def library(self) -> tuple[str, str]:
        """Name and version of the library that fits."""
        return self._trainer.library

    def fit(self, parts: Iterable[tuple[TrainingSamples, Weights]], seed: int, report: Report, *, continued: bool) -> None:
        """Fit a model, from the present one if there is one, and take it over as its bytes say.

        Args:
            parts: the training set in chunks for a trainer that takes those, else as one part.
            seed: seed of the fit.
            report: called after each round.
            continued: whether models continue earlier ones.

        Raises:
            TrainingError: the trainer fails, or cannot weigh samples that have weights.
        """
        trainer: Any = build_trainer(self._spec, replace(self._task, report=report, continued=continued))
        model, begun = self._model, False
        if model is not None and not trainer.continues:
            rule = f"{self._spec.name} cannot continue an earlier model"
            raise ConfigError(self._task.source, "training.use_previous_model", True, rule)
        for samples, weights in parts:
            if weights is not None and not trainer.takes_weights:
                raise TrainingError(f"{self._what} cannot weigh samples, and those of the training set have weights")
            with user_trainer(self._what):
                fitted = trainer.partial_fit(model, samples, weights) if begun else trainer.fit(samples, weights, model, seed)
            model, begun = fitted, True
        with user_trainer(self._what):
            content = trainer.to_bytes(model)
        if not isinstance(content, bytes) or not content:
            found = "nothing" if content == b"" else type(content).__name__
            raise TrainingError(f"{self._what}: to_bytes returned {found}, expected bytes")
        self.take_model(content)

    def take_model(self, content: bytes) -> None:
        """Replace the model by that of these bytes. ``ConfigError`` for a pickle, and for bytes that the trainer refuses."""
        refuse_pickle(content, source=self._task.source, name=self._spec.name)
        with user_trainer(self._what):
            self._model = self._trainer.from_bytes(content)
        self.content = torch.frombuffer(bytearray(content), dtype=torch.uint8)

    def stored(self) -> bytes:
        """Bytes of the model."""
        return self.content.cpu().numpy().tobytes()

    def rewritten(self) -> bytes:
        """Bytes that the trainer makes of the model as it was loaded: the same, if it keeps its promise."""
        with user_trainer(self._what):
            return bytes(self._trainer.to_bytes(self._model))

    def forward(self, inputs: Tensor) -> Tensor:
        """``[n, values]`` to ``float32[n, n_outputs]``; ``WrongShape`` where the trainer predicts something else."""
        if self._model is None:
            raise TrainingError(f"{self._what} has no model yet")
        values = inputs.cpu().numpy()
        with user_trainer(self._what):
            predicted = self._trainer.predict(self._model, values)
        return torch.from_numpy(self._outputs(values, np.asarray(predicted))).to(inputs.device)

    def _outputs(self, values: Inputs, predicted: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        n, n_outputs = len(values), self._task.n_outputs
        if self._task.kind == "target":
            if predicted.shape not in ((n,), (n, 1)):
                raise WrongShape([n], predicted.shape, what=self._what)
            return predicted.reshape(n, 1).astype(np.float32)
        if predicted.shape != (n, n_outputs):
            raise WrongShape([n, n_outputs], predicted.shape, what=self._what)
        logarithms: npt.NDArray[np.float32] = np.log(np.clip(predicted, _TINY, None)).astype(np.float32)
        return logarithms

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Take over a model of any length, which a buffer of torch would not."""
        *_, missing, unexpected, _errors = args
        name = f"{prefix}content"
        unexpected += [key for key in state_dict if key.startswith(prefix) and key != name]
        if name not in state_dict:
            missing.append(name)
        elif (tensor := state_dict[name]).dtype != torch.uint8:
            raise ConfigError(self._task.source, "training.model", self._spec.name, f"{name} holds {tensor.dtype}, not bytes")
        else:
            self.take_model(tensor.cpu().numpy().tobytes())


@contextmanager
def user_trainer(what: str) -> Iterator[None]:
    """Turn exceptions of a trainer into a ``TrainingError`` that begins with ``what``, and log its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        except ModynError:
            raise
        except Exception as error:
            raise TrainingError(f"{what} failed: {type(error).__name__}: {error}") from error
        finally:
            _log(what, caught)


def _log(what: str, caught: Sequence[warnings.WarningMessage]) -> None:
    for text in dict.fromkeys(f"{message.category.__name__}: {message.message}" for message in caught):
        logger.warning("%s: %s", what, text)
