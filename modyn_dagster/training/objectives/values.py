"""Objectives over the values of samples: reconstruction of the inputs, and embeddings of two views."""

import math
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.tasks.objectives import ContrastiveSpec, ReconstructionSpec, UnlabelledKind
from modyn_dagster.training.objectives.objective import Objective, OutputForm


class Reconstruction(Objective):
    """Mean squared or absolute error over the values of a sample.

    Its measures are both errors of each sample.

    Args:
        spec: error that is minimised.
        shape: shape of a sample's inputs; outputs of any shape with as many values are compared in their order.

    >>> objective = Reconstruction(ReconstructionSpec(name="reconstruction"), (2,))
    >>> objective.measures(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 4.0]]))
    tensor([[2., 1.]])
    """

    kind: ClassVar[UnlabelledKind] = "reconstruction"
    n_measures = 2

    def __init__(self, spec: ReconstructionSpec, shape: tuple[int, ...]) -> None:
        self._error = spec.error
        self.form = self.answer = OutputForm(shape, any_shape=True)
        self.n_outputs = self.form.width

    def pose(self, inputs: Tensor, keys: KeyArray, salt: int) -> tuple[Tensor, Tensor]:
        """Let the inputs be their own targets, ``float[n, values]``."""
        targets = inputs.flatten(1)
        # A copy: layers that work in place may change the inputs.
        return inputs, targets.clone() if targets.is_floating_point() else targets.to(torch.float32)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the error of each sample, ``float[n]``."""
        differences = outputs - targets
        return (differences.square() if self._error == "mse" else differences.abs()).mean(1)

    def measures(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the mean squared and the mean absolute error of each sample, ``float[n, 2]``."""
        differences = outputs - targets
        return torch.stack([differences.square().mean(1), differences.abs().mean(1)], 1)


class Contrastive(Objective):
    """NT-Xent over the two views of all samples of a batch.

    Its measures are the embeddings of both views, scaled to the length ``1 / sqrt(temperature)``: a product of two is their
    cosine similarity divided by the temperature.

    Args:
        spec: width of an embedding, and temperature.

    Source: Chen et al., A Simple Framework for Contrastive Learning of Visual Representations, ICML 2020.

    >>> objective = Contrastive(ContrastiveSpec(name="nt_xent", dimension=2, temperature=1.0))
    >>> objective.loss(torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]]), torch.zeros(2)).round(decimals=4)
    tensor([0.5514, 0.5514])
    """

    kind: ClassVar[UnlabelledKind] = "contrastive"

    def __init__(self, spec: ContrastiveSpec) -> None:
        self._scale = 1 / math.sqrt(spec.temperature)
        self.n_outputs = spec.dimension
        self.answer = OutputForm((spec.dimension,))
        self.form = OutputForm((spec.dimension,), views=2)
        self.n_measures = self.form.width

    def pose(self, inputs: Tensor, keys: KeyArray, salt: int) -> tuple[Tensor, Tensor]:
        """Keep the two views; there is no target."""
        # Named, because double precision changes torch's default while other threads pose the next questions.
        return inputs, torch.zeros(len(inputs), dtype=torch.float32)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the mean over both views of a sample, ``float[n]``; depends on the other samples. Zero for a single one."""
        rows = self._embeddings(outputs)
        own = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
        similarities = (rows @ rows.T).masked_fill(own, -math.inf)
        partners = torch.arange(len(rows), device=rows.device) ^ 1
        return functional.cross_entropy(similarities, partners, reduction="none").view(-1, 2).mean(1)

    def measures(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the scaled embeddings of both views, ``float[n, 2 * dimension]``."""
        return self._embeddings(outputs).reshape(len(outputs), -1)

    def _embeddings(self, outputs: Tensor) -> Tensor:
        return functional.normalize(outputs.reshape(-1, self.n_outputs), dim=1) * self._scale
