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


class Tagger(nn.Module):
    """Tags by a token and its neighbours."""

    def __init__(self, n_features: int, n_outputs: int, vocabulary: int, width: int = 8) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(n_features, width)
        self.around, self.head = nn.Conv1d(width, width, 3, padding=1), nn.Linear(width, n_outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        outputs: Tensor = self.head(torch.relu(self.around(hidden.mT).mT))
        return outputs


def tokens_alone(blobs: list[bytes]) -> dict[str, npt.NDArray[np.int64]]:
    """Parse no tags."""
    return {"features": np.ones((len(blobs), 6), np.int64)}


def tokens_and_tags(blobs: list[bytes]) -> dict[str, npt.NDArray[np.int64]]:
    """Parse a line of numbers and a line of tags to tokens and the numbers of their tags."""
    made = np.zeros((len(blobs), 2, 6), np.int64)
    made[:, 1] = -100
    for row, blob in zip(made, blobs, strict=True):
        words, tags = (line.split() for line in blob.decode().split("\n"))
        row[0, : len(words)] = [int(word) for word in words]
        row[1, : len(tags)] = [("O", "B-RISE", "I-RISE").index(tag) for tag in tags]
    return {"features": made}


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


class Pieces:
    """Tokenizer that takes a full stop for a token of its own, and no zero bytes."""

    def __call__(self, texts: list[str]) -> list[list[int]]:
        if any("\x00" in text for text in texts):
            raise ValueError("no such letter")
        return [[1] * (len(text.split()) + text.count(".")) for text in texts]
