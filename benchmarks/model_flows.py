"""Flows of models as MMlib evaluates them, really trained, and its baseline: what model stores are measured on."""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from modyn_dagster.training.models.resnet import ResNet

State = dict[str, Tensor]

#: Batches of an update, samples of a batch, classes, outputs, pixels of a side: fixed, for they decide the sizes of updates.
#: Smaller images would leave one pixel to the last stage of ResNet-18, and most of its weights without a gradient.
STEPS, BATCH, CLASSES, OUTPUTS, SIDE = 8, 32, 10, 1000, 64
PRETRAINING = 30
#: So weak against the noise that the loss, and with it the gradients, stay where fine-tuning has them.
SIGNAL = 0.03


@dataclass(frozen=True)
class Images:
    """Images of classes that differ by a pattern under noise, drawn from a seed: something a network can learn."""

    patterns: Tensor

    @classmethod
    def make(cls, seed: int = 0) -> "Images":
        generator = torch.Generator().manual_seed(seed)
        return cls(torch.randn(CLASSES, 3, SIDE, SIDE, generator=generator))

    def batch(self, seed: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(0, CLASSES, (BATCH,), generator=generator)
        return self.patterns[labels] * SIGNAL + torch.randn(BATCH, 3, SIDE, SIDE, generator=generator), labels


def train(module: nn.Module, images: Images, *, lr: float, steps: int, seed: int, only_last: bool = False) -> State:
    """Plain SGD with momentum 0.9; ``only_last`` trains the last linear layer, the rest in evaluation mode and frozen."""
    module.train(not only_last)
    trained = [p for name, p in module.named_parameters() if not only_last or name.startswith(last_layer(module))]
    optimizer = torch.optim.SGD(trained, lr=lr, momentum=0.9)
    for step in range(steps):
        inputs, labels = images.batch(seed * 10_000 + step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def last_layer(module: nn.Module) -> str:
    """Name of the last linear layer."""
    names = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    return str(names[-1])


def flow(
    build: Callable[[], nn.Module], *, lr: float, rounds: int, steps: int = STEPS, only_last: bool = False
) -> Iterator[State]:
    """U1, ``rounds`` × U3-1, U2, ``rounds`` × U3-2: each trained on from the one before, the first pre-trained at 0.01."""
    torch.manual_seed(0)
    module = build()
    images = Images.make()
    yield train(module, images, lr=0.01, steps=PRETRAINING, seed=0)
    for n in range(2 * rounds + 1):
        yield train(module, images, lr=lr, steps=steps, seed=n + 1, only_last=only_last)


def resnet18() -> nn.Module:
    """11.7 M parameters, as for the 1,000 classes of ImageNet."""
    return ResNet(OUTPUTS)


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
            nn.Linear(256, OUTPUTS),
        )

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layers(x)
        return found


def n_bytes(state: Mapping[str, Tensor]) -> int:
    """Of all tensors."""
    return sum(tensor.nbytes for tensor in state.values())


def baseline_save(state: Mapping[str, Tensor], path: Path) -> float:
    """Seconds of MMlib's baseline: a hash of every tensor, ``torch.save``, and a sync to the disk."""
    start = time.perf_counter()
    hashes = {name: hashlib.md5(_bytes(tensor), usedforsecurity=False).hexdigest() for name, tensor in state.items()}
    with open(path, "wb") as file:
        torch.save({"state": dict(state), "hashes": hashes}, file)
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - start


def baseline_load(path: Path) -> float:
    """Seconds of its recovery: ``torch.load``, and the hash of every tensor compared."""
    start = time.perf_counter()
    content = torch.load(path, weights_only=True)
    for name, tensor in content["state"].items():
        if hashlib.md5(_bytes(tensor), usedforsecurity=False).hexdigest() != content["hashes"][name]:
            raise RuntimeError(f"{path}: {name} changed")
    return time.perf_counter() - start


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data
