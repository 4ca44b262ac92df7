"""Deep learning recommendation model: embeddings, dot products and two fully connected networks."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from modyn_dagster.spec.learning.models import DLRMSpec
from modyn_dagster.training.models.dense import dense
from modyn_dagster.training.models.layout import Layout


class DLRM(nn.Module):
    """DLRM: outputs ``float32[n, n_outputs]`` for ``numeric float[n, n_numeric]`` and ``categorical int[n, len(rows)]``.

    Args:
        n_numeric: number of numeric columns.
        rows: table size of each categorical column; a larger category shares the row of its remainder.
        embedding: width of table rows and of the bottom network's outputs.
        bottom: widths of the bottom network's hidden layers.
        top: widths of the top network's hidden layers.
        n_outputs: outputs of the top network.
        sparse: make gradients of the tables sparse tensors, which only some optimizers take.

    >>> model = DLRM(3, [10, 20], embedding=4, bottom=[8], top=[8], n_outputs=2)
    >>> tuple(model(torch.zeros(5, 3), torch.zeros(5, 2, dtype=torch.int64)).shape)
    (5, 2)

    Source: Naumov et al., Deep Learning Recommendation Model for Personalization and Recommendation Systems, 2019,
    arXiv:1906.00091.
    """

    rows: Tensor
    starts: Tensor
    lower: Tensor

    def __init__(
        self,
        n_numeric: int,
        rows: Sequence[int],
        *,
        embedding: int,
        bottom: Sequence[int],
        top: Sequence[int],
        n_outputs: int,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        # One table for all columns: one look-up in place of many.
        self.embedding = nn.Embedding(sum(rows), embedding, sparse=sparse)
        nn.init.normal_(self.embedding.weight, std=embedding**-0.5)
        # Derived from the arguments, so not part of the state.
        self.register_buffer("rows", torch.tensor(rows), persistent=False)
        self.register_buffer("starts", torch.tensor([0, *rows[:-1]]).cumsum(0), persistent=False)
        self.bottom = nn.Sequential(*dense(n_numeric, bottom, embedding), nn.ReLU())
        n = len(rows) + 1
        lower = torch.tril_indices(n, n, offset=-1)
        self.register_buffer("lower", lower[0] * n + lower[1], persistent=False)
        self.top = dense(embedding + lower.shape[1], top, n_outputs)

    def forward(self, numeric: Tensor, categorical: Tensor) -> Tensor:
        """Compute the outputs from the bottom network's vector and its dot products with all embeddings."""
        dense_part = self.bottom(numeric)
        embedded = self.embedding(categorical % self.rows + self.starts)
        vectors = torch.cat([dense_part.unsqueeze(1), embedded], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        outputs: Tensor = self.top(torch.cat([dense_part, products.index_select(1, self.lower)], dim=1))
        return outputs


def dlrm(spec: DLRMSpec, layout: Layout, n_outputs: int) -> nn.Module:
    """Build a DLRM with a table of ``rows`` for each categorical column."""
    widths = {part.name: part.n_features for part in layout.inputs}
    rows = [spec.rows] * widths["categorical"]
    return DLRM(widths["numeric"], rows, embedding=spec.embedding, bottom=spec.bottom, top=spec.top, n_outputs=n_outputs)
