"""Networks for texts in the encoding of the parser ``text``: numbers of n-grams from 1 on, then zeros."""

from torch import Tensor, nn

from modyn_dagster.spec.learning.models import DistilBertSpec, HashedTextSpec
from modyn_dagster.training.models.dense import dense
from modyn_dagster.training.models.layout import Layout


class HashedText(nn.Module):
    """Mean embedding of a text's hashed n-grams, then fully connected layers: outputs for ``int64[n, length]``.

    Args:
        spec: sizes of the table, its rows and the hidden layers.
        n_outputs: number of outputs.

    >>> import torch
    >>> model = HashedText(HashedTextSpec(name="hashed_text"), n_outputs=3)
    >>> tuple(model(torch.zeros(2, 5, dtype=torch.int64)).shape)
    (2, 3)

    Source: Joulin et al., Bag of Tricks for Efficient Text Classification, EACL 2017.
    """

    def __init__(self, spec: HashedTextSpec, n_outputs: int) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(spec.buckets + 1, spec.embedding, mode="mean", padding_idx=0)
        self.head = dense(spec.embedding, spec.hidden, n_outputs, dropout=spec.dropout)

    def forward(self, numbers: Tensor) -> Tensor:
        """Compute outputs. A text without n-grams has the embedding 0."""
        outputs: Tensor = self.head(self.embedding(numbers))
        return outputs


class DistilBert(nn.Module):
    """DistilBERT encoder, then a hidden layer on its first position: outputs for ``int64[n, length]``.

    Args:
        spec: sizes of the vocabulary and the encoder.
        n_outputs: number of outputs.

    Source: Sanh et al., DistilBERT, a Distilled Version of BERT, 2019, arXiv:1910.01108.
    """

    def __init__(self, spec: DistilBertSpec, n_outputs: int) -> None:
        super().__init__()
        from transformers import DistilBertConfig, DistilBertModel

        config = DistilBertConfig(  # type: ignore[no-untyped-call]  # transformers has no type for it
            vocab_size=spec.buckets + 2,
            max_position_embeddings=spec.length + 1,
            n_layers=spec.layers,
            n_heads=spec.heads,
            dim=spec.width,
            hidden_dim=spec.hidden,
            dropout=spec.dropout,
            attention_dropout=spec.dropout,
            pad_token_id=0,
        )
        self.first = spec.buckets + 1
        self.encoder = DistilBertModel(config)
        self.head = dense(spec.width, [spec.width], n_outputs, dropout=spec.dropout)

    def forward(self, numbers: Tensor) -> Tensor:
        """Compute outputs. A special token comes first, so that no text is empty."""
        marked = nn.functional.pad(numbers, (1, 0), value=self.first)
        hidden = self.encoder(input_ids=marked, attention_mask=(marked != 0).long()).last_hidden_state
        outputs: Tensor = self.head(hidden[:, 0])
        return outputs


def hashed_text(spec: HashedTextSpec, layout: Layout, n_outputs: int) -> nn.Module:
    """Build a model for texts of any length."""
    _require_texts(layout)
    return HashedText(spec, n_outputs)


def distilbert(spec: DistilBertSpec, layout: Layout, n_outputs: int) -> nn.Module:
    """Build a model; ``ValueError`` if texts of the parser are longer than its positions."""
    if (length := _require_texts(layout)) > spec.length:
        raise ValueError(f"texts have {length} words, the model takes {spec.length}; raise its `length`")
    return DistilBert(spec, n_outputs)


def _require_texts(layout: Layout) -> int:
    shape = layout.inputs[0].shape
    if len(shape) != 1:
        raise ValueError(f"a sample must be a row of numbers of n-grams, not {list(shape)}; use the parser `text`")
    return int(shape[0])
