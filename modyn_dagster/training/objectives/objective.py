"""The protocol of objectives, and the form of a model's outputs."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from modyn_dagster.errors import WrongShape
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.tasks.objectives import UnlabelledKind


@dataclass(frozen=True, slots=True)
class OutputForm:
    """Form of what a model returns for a sample.

    Attributes:
        shape: shape of one row of outputs.
        views: rows per sample, one behind the other.
        any_shape: accept rows of any shape with as many values.
    """

    shape: tuple[int, ...]
    views: int = 1
    any_shape: bool = False

    @property
    def width(self) -> int:
        """Values per sample, over all views."""
        return self.views * math.prod(self.shape)

    def checked(self, outputs: object, n_samples: int, *, what: str) -> Tensor:
        """Return the outputs of ``n_samples`` as ``[n, width]``; ``WrongShape`` for anything else than this form."""
        expected = (n_samples * self.views, *self.shape)
        if not isinstance(outputs, Tensor):
            raise WrongShape(expected, (), what=f"{what} (a {type(outputs).__name__})")
        fits = outputs.ndim > 0 and len(outputs) == expected[0] and outputs.numel() == math.prod(expected)
        if not fits or (outputs.shape != expected and not self.any_shape):
            raise WrongShape(expected, outputs.shape, what=what)
        return outputs.reshape(n_samples, self.width)


class Objective(ABC):
    """Objective of a model without a label.

    Its loss is a function of the outputs ``float[n, form.width]`` and of the targets that ``pose`` makes of the inputs, as
    that of a labelled task is one of outputs and labels.

    Attributes:
        kind: kind of the task.
        n_outputs: number of outputs that a model is built with.
        form: form of the outputs in training.
        answer: form of the outputs for one view, as drift metrics and serving get them.
        n_measures: values per sample that metrics are computed from.
    """

    kind: ClassVar[UnlabelledKind]
    n_outputs: int
    form: OutputForm
    answer: OutputForm
    n_measures: int

    def shown(self, inputs: Tensor) -> Tensor:
        """Return what a model sees of inputs ``[n, ...]``: all of them, unless they hold the targets too."""
        return inputs

    @abstractmethod
    def pose(self, inputs: Tensor, keys: KeyArray, salt: int) -> tuple[Tensor, Tensor]:
        """Make the model's inputs and the targets ``[n, ...]``.

        Args:
            inputs: one view ``[n, ...]``, or ``form.views`` of them as ``[n, views, ...]``; not changed.
            keys: ``uint64[n]``; what is drawn for a sample depends on its key and ``salt`` alone.
            salt: at least 0; differs by training and epoch.
        """

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the losses of samples, ``float[n]``."""

    @abstractmethod
    def measures(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute what metrics are made of, ``float[n, n_measures]``."""
