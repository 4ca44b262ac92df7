"""Flows of trained models, as in MMlib's evaluation, for measuring model stores."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Final

import torch
from torch import Tensor, nn

from modyn_dagster.training.models.images import ResNet

State = dict[str, Tensor]

#: Classes and pixels of a side: fixed, for they decide the sizes of updates. With fewer than 33 pixels the last stage of
#: ResNet-18 would see one pixel, and most of its weights have no gradient; nor has an output for a class that never comes.
CLASSES: Final = 1000
SIDE: Final = 36
#: So weak against the noise that the loss, and with it the gradients, stay where fine-tuning has them.
SIGNAL: Final = 0.03
MOMENTUM: Final = 0.9


@dataclass(frozen=True)
class Recipe:
    """A network and how long it is trained: before the flow at a rate of 0.01, and for each update."""

    build: Callable[[], nn.Module]
    batch: int = 32
    steps: int = 8
    pretraining: int = 30

    def __str__(self) -> str:
        data = f"synthetic {SIDE} x {SIDE} images of {CLASSES} classes"
        return f"{self.build.__name__}, {data}, SGD {MOMENTUM}, batch {self.batch}, {self.steps} steps"

    def conditions(self) -> dict[str, tuple[float, str]]:
        """Model, data, batch and steps: a number and what it counts, by a short name."""
        return {
            "model": (sum(p.numel() for p in self.build().parameters()), f"parameters of {self.build.__name__}"),
            "data": (CLASSES, f"classes of synthetic images, 3 x {SIDE} x {SIDE}, drawn anew for every step"),
            "batch": (self.batch, "samples"),
            "pretraining": (self.pretraining, f"steps of SGD, momentum {MOMENTUM}, lr 0.01, before the first model"),
            "steps": (self.steps, f"steps of SGD, momentum {MOMENTUM}, for each update"),
        }


@dataclass(frozen=True)
class Images:
    """Images of classes that differ by a pattern under noise, drawn from a seed: something a network can learn."""

    patterns: Tensor

    @classmethod
    @cache
    def make(cls) -> "Images":
        return cls(torch.randn(CLASSES, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0)))

    def batch(self, n: int, seed: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(0, CLASSES, (n,), generator=generator)
        return self.patterns[labels] * SIGNAL + torch.randn(n, 3, SIDE, SIDE, generator=generator), labels


@cache
def first(recipe: Recipe) -> State:
    """U1: trained from fresh weights."""
    torch.manual_seed(0)
    module = recipe.build()
    return _trained(module, recipe, lr=0.01, steps=recipe.pretraining, seed=0, only_last=False)


def flow(
    recipe: Recipe, *, lr: float, updates: int, only_last: bool = False, start: State | None = None, seed: int = 0
) -> Iterator[State]:
    """A model, U1 unless ``start`` says another one, and so many updates, each trained on from the one before.

    ``seed`` draws other data.
    """
    state = first(recipe) if start is None else start
    yield state
    module = recipe.build()
    for n in range(updates):
        module.load_state_dict(state)
        state = _trained(module, recipe, lr=lr, steps=recipe.steps, seed=1000 * seed + n + 1, only_last=only_last)
        yield state


def standard_flow(recipe: Recipe, *, lr: float, iterations: int = 4, nodes: int = 1) -> Iterator[tuple[int | None, State]]:
    """U1, on every node U3-1 again and again, U2 from U1, on every node U3-2; each with the place of the model it derives from.

    One node and 4 iterations are the standard flow of 10 models, 20 nodes and 10 iterations DIST-20 with its 402.
    """
    u1, u2 = flow(recipe, lr=lr, updates=1)
    place = -1
    for given, start, origin in ((0, u1, None), (nodes * iterations + 1, u2, 0)):
        yield origin, start
        place += 1
        for node in range(nodes):
            parent = given
            seed = 1 + given + node
            for state in islice(flow(recipe, lr=lr, updates=iterations, start=start, seed=seed), 1, None):
                yield parent, state
                place += 1
                parent = place


def last_layer(module: nn.Module) -> str:
    """Name of the last linear layer."""
    names = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    return str(names[-1])


def resnet18() -> nn.Module:
    """11.7 M parameters, as for the 1,000 classes of ImageNet."""
    return ResNet(CLASSES)


def resnet152() -> nn.Module:
    """60.2 M parameters in 932 tensors."""
    return ResNet(CLASSES, layers=152)


class SmallNet(nn.Module):
    """0.5 M parameters: for flows of hundreds of models."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, 2, 1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(1024, 256),
            nn.ReLU(),
            nn.Linear(256, CLASSES),
        )

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layers(x)
        return found


def n_bytes(state: Mapping[str, Tensor]) -> int:
    """Of all tensors."""
    return sum(tensor.nbytes for tensor in state.values())


def _trained(module: nn.Module, recipe: Recipe, *, lr: float, steps: int, seed: int, only_last: bool) -> State:
    """Plain SGD; ``only_last`` trains the last linear layer, the rest in evaluation mode and frozen."""
    module.train(not only_last)
    parameters = [p for name, p in module.named_parameters() if not only_last or name.startswith(last_layer(module))]
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=MOMENTUM)
    with _one_thread():
        for step in range(steps):
            inputs, labels = Images.make().batch(recipe.batch, seed * 10_000 + step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(inputs), labels).backward()  # type: ignore[no-untyped-call]  # torch has no type for it
            optimizer.step()
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


@contextmanager
def _one_thread() -> Iterator[None]:
    """The bits of a training depend on the number of threads; and on a busy machine several wait for each other in vain."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
