"""Embeddings of encoded columns within a row of numbers."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from modyn_dagster.training.columns.input import Input


class EmbeddedRow(nn.Module):
    """Row of numbers in which each value of some columns is replaced by a vector: ``[n, values]`` to ``[n, width]``.

    The other columns come first. The vector of row 0 is zero at first and thus says nothing until it is learnt, as row 0 stands
    for unknown values where ``has_unknown`` says so.

    Args:
        n_values: values of the row.
        places: of the embedded columns.
        rows: of the table of each.
        dimensions: widths of their vectors.
        has_unknown: of each.

    >>> model = EmbeddedRow(3, [1], rows=[5], dimensions=[4], has_unknown=[True])
    >>> model(torch.tensor([[0.5, 0.0, 0.25]]))[0].tolist()
    [0.5, 0.25, 0.0, 0.0, 0.0, 0.0]
    """

    places: Tensor
    others: Tensor

    def __init__(
        self,
        n_values: int,
        places: Sequence[int],
        *,
        rows: Sequence[int],
        dimensions: Sequence[int],
        has_unknown: Sequence[bool],
    ) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, width) for n, width in zip(rows, dimensions, strict=True))
        for table, unknown in zip(self.tables, has_unknown, strict=True):
            assert isinstance(table, nn.Embedding)  # noqa: S101 - narrows the type
            nn.init.normal_(table.weight, std=table.embedding_dim**-0.5)
            if unknown:
                nn.init.zeros_(table.weight[0])
        others = [place for place in range(n_values) if place not in set(places)]
        # Derived from the arguments, so not part of the state.
        self.register_buffer("places", torch.tensor(places), persistent=False)
        self.register_buffer("others", torch.tensor(others, dtype=torch.int64), persistent=False)
        self.width = len(others) + sum(dimensions)

    def forward(self, row: Tensor) -> Tensor:
        """Replace numbers by vectors."""
        numbers = row.index_select(1, self.places).to(torch.int64)
        vectors = [table(numbers[:, i]) for i, table in enumerate(self.tables)]
        return torch.cat([row.index_select(1, self.others), *vectors], dim=1)


def embedded_row(entry: Input) -> EmbeddedRow | None:
    """Build the embeddings of an input; None where no column has one."""
    found = [(encoding, start) for _, encoding, start, _ in entry.parts() if encoding and encoding.kind == "embedding"]
    if not found:
        return None
    return EmbeddedRow(
        entry.n_features,
        [start for _, start in found],
        rows=[encoding.rows for encoding, _ in found],
        dimensions=[encoding.dimension for encoding, _ in found],
        has_unknown=[encoding.has_vocabulary for encoding, _ in found],
    )
