"""A model of this project: the mean embedding of a text's words. Pipelines name it as ``factory``."""

from torch import Tensor, nn


class Network(nn.Module):
    """Mean embedding and a linear layer: outputs ``float32[n, n_outputs]`` of words ``int64[n, length]``, then zeros."""

    def __init__(self, n_outputs: int, buckets: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(buckets + 1, width, mode="mean", padding_idx=0)
        self.head = nn.Linear(width, n_outputs)

    def forward(self, words: Tensor) -> Tensor:
        """Compute outputs: a logit per class, or the one number of a regression."""
        outputs: Tensor = self.head(self.embedding(words))
        return outputs


def build(n_features: int, n_outputs: int, buckets: int = 4096, width: int = 32) -> nn.Module:  # noqa: ARG001 - the platform gives it
    """Build the model; the platform gives the first two, ``config`` of the pipeline the others. ``buckets`` as in the parser."""
    return Network(n_outputs, buckets, width)
