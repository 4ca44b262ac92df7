"""User code as a project would have it; tests name it by import path."""

import random
from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor, nn

from modyn_dagster.training.downsampling import Chosen, Pool

Loss = Callable[[Tensor, Tensor], Tensor]


def linear(n_features: int, n_outputs: int, bias: bool = True) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(n_features, n_outputs, bias=bias))


class Identity(nn.Module):
    """Returns its input, and has a parameter so that it can be trained."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.reshape(len(inputs), -1).to(torch.float32) + self.shift


def identity(n_features: int, n_outputs: int) -> nn.Module:
    return Identity()


class TiedLayers(nn.Module):
    """Two layers of one weight."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(n_features, n_features)
        self.second = nn.Linear(n_features, n_features)
        self.second.weight = self.first.weight
        self.head = nn.Linear(n_features, n_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.second(self.first(inputs)))
        return outputs


def tied(n_features: int, n_outputs: int) -> nn.Module:
    return TiedLayers(n_features, n_outputs)


class Restless(nn.Module):
    """Draws from every generator a model can reach."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(n_features, n_outputs)
        self.dropout = nn.Dropout(0.5)

    def forward(self, inputs: Tensor) -> Tensor:
        noise = random.getrandbits(20) / 2**20 + float(np.random.random())
        outputs: Tensor = self.layer(self.dropout(inputs)) + (noise if self.training else 0.0)
        return outputs


def restless(n_features: int, n_outputs: int) -> nn.Module:
    return Restless(n_features, n_outputs)


def not_a_module(n_features: int, n_outputs: int) -> object:
    return object()


def frozen(n_features: int, n_outputs: int) -> nn.Module:
    return nn.Linear(n_features, n_outputs).requires_grad_(False)


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, inputs: Tensor) -> Tensor:
        raise KeyError("no such layer")


def failing(n_features: int, n_outputs: int) -> nn.Module:
    return Failing()


def scaled_cross_entropy(scale: float = 1.0) -> Loss:
    return lambda outputs, targets: scale * nn.functional.cross_entropy(outputs, targets, reduction="none")


def mean_loss() -> Loss:
    return nn.functional.cross_entropy


def poisoned_loss(value: str = "nan") -> Loss:
    """Becomes NaN, or infinite, at its third step."""
    steps = 0

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        nonlocal steps
        steps += 1
        losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
        return losses * float(value) if steps == 3 else losses

    return loss


def plain_sgd(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=lr)


def not_an_optimizer(parameters: Iterable[nn.Parameter]) -> object:
    return object()


class Recommender(nn.Module):
    """Numbers and categories as DLRM has them: a linear layer and embeddings, added up."""

    def __init__(self, n_features: dict[str, int], n_outputs: int, n_categories: int) -> None:
        super().__init__()
        self.linear = nn.Linear(n_features["numeric"], n_outputs)
        self.embedding = nn.Embedding(n_categories, n_outputs)
        self.seen: list[tuple[torch.dtype, torch.dtype]] = []

    def forward(self, numeric: Tensor, categorical: Tensor) -> Tensor:
        self.seen.append((numeric.dtype, categorical.dtype))
        outputs: Tensor = self.linear(numeric) + self.embedding(categorical).sum(dim=1)
        return outputs


def recommender(n_features: dict[str, int], n_outputs: int, n_categories: int = 8) -> nn.Module:
    return Recommender(n_features, n_outputs, n_categories)


class ByKeywords(nn.Module):
    def __init__(self, n_features: dict[str, int], n_outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(sum(n_features.values()), n_outputs)

    def forward(self, **inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layer(torch.cat(list(inputs.values()), dim=1))
        return outputs


def by_keywords(n_features: dict[str, int], n_outputs: int) -> nn.Module:
    return ByKeywords(n_features, n_outputs)


NOT_CALLABLE = 7


#: Epochs in which ``Newest`` was asked.
ASKED: list[int] = []


class Newest:
    """Keeps the last samples of a pool, with weight 1."""

    needs = frozenset({"losses"})

    def __init__(self, skip: int = 0) -> None:
        self.skip = skip

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        ASKED.append(pool.epoch)
        assert len(pool.sample_losses()) == pool.n
        return Chosen.plain(torch.arange(pool.n - k - self.skip, pool.n - self.skip))


def no_policy() -> int:
    return 3


class FadingLoss(nn.Module):
    """Counts its calls, and weighs later ones less."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.calls += 1
        return nn.functional.cross_entropy(outputs, targets, reduction="none") / self.calls


def fading_loss() -> Loss:
    return FadingLoss()


def halving(optimizer: torch.optim.Optimizer, n_steps: int, every: int = 1) -> torch.optim.lr_scheduler.LRScheduler:
    SCHEDULED.append(n_steps)
    return torch.optim.lr_scheduler.StepLR(optimizer, every, gamma=0.5)


def no_scheduler(optimizer: torch.optim.Optimizer, n_steps: int) -> object:
    return object()


#: What ``halving`` was told of lengths.
SCHEDULED: list[int] = []
#: Learning rates by step and group, of every optimizer that ``noting_sgd`` made.
RATES: list[list[float]] = []


class NotingSGD(torch.optim.SGD):
    """Writes down its learning rates before every step."""

    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no step here has a closure
        RATES.append([float(group["lr"]) for group in self.param_groups])
        super().step(closure)


def noting_sgd(parameters: Iterable[nn.Parameter], lr: float = 0.1) -> torch.optim.Optimizer:
    return NotingSGD(parameters, lr=lr)
