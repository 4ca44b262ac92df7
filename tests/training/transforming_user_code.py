"""Transforms as a project would have them; tests name them by import path."""

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

#: Names of threads that were at work.
THREADS: set[str] = set()
#: Marks of the variants that were called, and with how many samples.
SEEN: list[tuple[str, int]] = []


def times(inputs: Tensor, factor: float = 2.0) -> Tensor:
    return inputs * factor


def in_place(inputs: Tensor) -> Tensor:
    return inputs.mul_(2)


def marked(mark: str) -> Callable[[Tensor], Tensor]:
    def transform(inputs: Tensor) -> Tensor:
        SEEN.append((mark, len(inputs)))
        return inputs

    return transform


def jitter(inputs: Tensor, *, rng: np.random.Generator, scale: float = 0.5) -> npt.NDArray[np.float64]:
    """As an augmentation in NumPy: float64, and not a tensor."""
    jittered: npt.NDArray[np.float64] = np.asarray(inputs) + rng.normal(0, scale, inputs.shape)
    return jittered


def who_draws(inputs: Tensor) -> Tensor:
    THREADS.add(threading.current_thread().name)
    return inputs


def who_is_given(inputs: Tensor, *, rng: np.random.Generator) -> Tensor:
    return who_draws(inputs)


class Noise(nn.Module):
    """As torchvision has them: a module that draws from torch's generator, and now and then from others."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + torch.randn(inputs.shape) * float(np.random.random()) + random.getrandbits(8)


def noise() -> nn.Module:
    return Noise()


def draws_in_vain(inputs: Tensor) -> Tensor:
    torch.rand(3)
    random.getrandbits(8)
    np.random.random()
    return inputs


def crop(inputs: Tensor) -> Tensor:
    return inputs[..., 1:-1, 1:-1]


def corner(inputs: Tensor, *, rng: np.random.Generator) -> Tensor:
    """A window of 4 x 4, anywhere."""
    top, left = rng.integers(0, 3, 2).tolist()
    return inputs[..., top : top + 4, left : left + 4]


def fails_on_large(inputs: Tensor) -> Tensor:
    if (inputs > 50).any():
        raise ValueError("too large")
    return inputs


def one_alone(inputs: Tensor) -> Tensor:
    if len(inputs) > 1:
        raise ValueError("one at a time, please")
    return inputs


def ragged(inputs: Tensor) -> Tensor:
    return inputs if inputs[0] > 0 else inputs[:1]


def one_too_few(inputs: Tensor) -> Tensor:
    return inputs[1:]


def a_text(inputs: Tensor) -> str:
    return "no tensor"


def planes(blobs: list[bytes]) -> dict[str, npt.NDArray[np.uint8]]:
    """Bytes of 6 x 6 pixels in the middle of 10 x 10."""
    pixels = [np.frombuffer(blob, np.uint8).reshape(1, 6, 6) for blob in blobs]
    return {"features": np.pad(np.stack(pixels), ((0, 0), (0, 0), (2, 2), (2, 2)))}


def not_callable() -> int:
    return 3


class Seen(nn.Module):
    """Knows how many values it was told of."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(n_features, n_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layer(inputs.float().flatten(1))
        return outputs


def seen(n_features: int, n_outputs: int) -> nn.Module:
    return Seen(n_features, n_outputs)


def modulo(labels: npt.NDArray[Any], by: int = 2) -> npt.NDArray[Any]:
    return labels % by


def halved(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return labels / 2


def refuses_two(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if (labels == 2).any():
        raise KeyError("two")
    return labels


class Tokens:
    """Letters of a word are its tokens."""

    def __init__(self, first: int = 1) -> None:
        self.first = first

    def __call__(self, texts: list[str]) -> list[list[int]]:
        if any("\x00" in text for text in texts):
            raise ValueError("no such letter")
        return [[ord(letter) - ord("a") + self.first for letter in text] for text in texts]


def tokens(first: int = 1) -> Tokens:
    return Tokens(first)


def no_tokens() -> Callable[[list[str]], list[str]]:
    return lambda texts: texts
