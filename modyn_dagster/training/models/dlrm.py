"""Deep learning recommendation model (Naumov et al., arXiv:1906.00091): embeddings, dot products, two networks."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from modyn_dagster.spec.learning.models import DLRMSpec
from modyn_dagster.training.models.dense import dense
from modyn_dagster.training.models.layout import Layout


class DLRM(nn.Module):
    """Outputs ``float32[n, n_outputs]`` of ``numeric float[n, n_numeric]`` and ``categorical int[n, len(rows)]``.

    Args:
        n_numeric: numbers of a sample.
        rows: of each category's table; a larger number shares the row of its remainder.
        embedding: width of a row, and of what the bottom network makes of the numbers.
        bottom, top: widths of hidden layers.
        n_outputs: of the top network.
        sparse: whether gradients of the tables are sparse tensors, which only some optimizers take.
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
        # They follow from the arguments: no part of the state.
        self.register_buffer("rows", torch.tensor(rows), persistent=False)
        self.register_buffer("starts", torch.tensor([0, *rows[:-1]]).cumsum(0), persistent=False)
        self.bottom = nn.Sequential(*dense(n_numeric, bottom, embedding), nn.ReLU())
        n = len(rows) + 1
        lower = torch.tril_indices(n, n, offset=-1)
        self.register_buffer("lower", lower[0] * n + lower[1], persistent=False)
        self.top = dense(embedding + lower.shape[1], top, n_outputs)

    def forward(self, numeric: Tensor, categorical: Tensor) -> Tensor:
        """Dot products between all embeddings and the numbers' vector, beside that vector."""
        dense_part = self.bottom(numeric)
        embedded = self.embedding(categorical % self.rows + self.starts)
        vectors = torch.cat([dense_part.unsqueeze(1), embedded], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        outputs: Tensor = self.top(torch.cat([dense_part, products.index_select(1, self.lower)], dim=1))
        return outputs


def dlrm(spec: DLRMSpec, layout: Layout, n_outputs: int) -> nn.Module:
    """With a table of ``rows`` for each categorical column."""
    widths = {each.name: each.n_features for each in layout.inputs}
    rows = [spec.rows] * widths["categorical"]
    return DLRM(widths["numeric"], rows, embedding=spec.embedding, bottom=spec.bottom, top=spec.top, n_outputs=n_outputs)
