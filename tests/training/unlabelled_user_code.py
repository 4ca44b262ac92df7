"""Models and transforms for learning without labels, as a project would have them."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn


class Transformer(nn.Module):
    """Tiny transformer over token numbers: logits of every place, of those before it alone where ``causal``."""

    def __init__(self, n_features: int, n_outputs: int, width: int = 8, *, causal: bool = True) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(n_outputs, width), nn.Embedding(n_features, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.0, batch_first=True)
        self.head, self._causal = nn.Linear(width, n_outputs), causal

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length) if self._causal else None
        hidden = self.layer(self.tokens(tokens) + self.places(torch.arange(length)), src_mask=mask)
        outputs: Tensor = self.head(hidden)
        return outputs


def uniform_logits(n_features: int, n_outputs: int) -> nn.Module:
    """A model that thinks all tokens equally likely."""
    return UniformLogits(n_outputs)


class UniformLogits(nn.Module):
    def __init__(self, n_outputs: int) -> None:
        super().__init__()
        self.level, self._n_outputs = nn.Parameter(torch.zeros(1)), n_outputs

    def forward(self, tokens: Tensor) -> Tensor:
        return self.level.expand(*tokens.shape, self._n_outputs)


def one_row_short(n_features: int, n_outputs: int) -> nn.Module:
    """A model with outputs of another shape."""
    return nn.Linear(n_features, n_outputs + 1)


def jittered(inputs: Tensor, *, rng: np.random.Generator, scale: float = 0.5) -> npt.NDArray[np.float32]:
    """Add noise by the sample's own generator."""
    return np.asarray(inputs.numpy() + rng.normal(0, scale, inputs.shape), np.float32)


class Words:
    """Tokenizer of numbers: ``"3 1 4"`` is 3, 1, 4, and any other word is 1."""

    def __call__(self, texts: list[str]) -> list[list[int]]:
        return [[int(word) if word.isdigit() else 1 for word in text.split()] for text in texts]
