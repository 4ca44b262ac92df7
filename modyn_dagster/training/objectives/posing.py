"""Questions to a model in one epoch: views of the samples by its transforms, and their targets."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from modyn_dagster.keys import KeyArray
from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.training.memory import aligned
from modyn_dagster.training.objectives.objective import Objective
from modyn_dagster.training.transforms.chain import Pass, Tensors, Transforms


@dataclass(frozen=True, slots=True)
class Posing:
    """Posing of an objective's question for batches of one epoch.

    Attributes:
        objective: makes inputs and targets of the views.
        passes: transforms of each view.
        salt: seed of what the objective draws.
    """

    objective: Objective
    passes: tuple[Pass, ...]
    salt: int

    @classmethod
    def training(cls, objective: Objective, transforms: Transforms, seed: int, epoch: int) -> Self:
        """Question of an epoch of training. Two views of a sample draw apart."""
        seeds = [seed if view == 0 else seed_for(seed, "view", view) for view in range(objective.form.views)]
        return cls(objective, tuple(transforms.training(each, epoch) for each in seeds), seed_for(seed, "question", epoch))

    @classmethod
    def evaluation(cls, objective: Objective, transforms: Transforms) -> Self:
        """Question of every measurement: the same for a sample every time, to every model.

        Several views need the transforms of training, which make them differ.
        """
        if objective.form.views > 1:
            return cls.training(objective, transforms, 0, 0)
        return cls(objective, (transforms.evaluation(),), seed_for(0, "question", 0))

    @property
    def beside(self) -> bool:
        """True if a transform needs the training thread."""
        return any(bool(passing.split()[1]) for passing in self.passes)

    def __call__(self, inputs: Tensors, keys: KeyArray) -> tuple[Tensors, Tensor]:
        """Make inputs and targets of the samples with these keys; the given inputs stay as they are."""
        ((name, tensor),) = inputs.items()
        # A transform may change what it gets.
        views = [passing({name: tensor.clone()}, keys)[name] if passing else tensor for passing in self.passes]
        posed, targets = self.objective.pose(views[0] if len(views) == 1 else torch.stack(views, 1), keys, self.salt)
        return {name: _aligned(posed)}, _aligned(targets)


def _aligned(tensor: Tensor) -> Tensor:
    return torch.from_numpy(aligned(tensor.contiguous().numpy()))
