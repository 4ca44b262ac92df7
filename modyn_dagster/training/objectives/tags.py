"""Sequence labelling: the tag of each token."""

from typing import ClassVar

import torch
from torch import Tensor

from modyn_dagster.errors import TrainingError
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.tasks.objectives import IGNORED, TokenTagsSpec, UnlabelledKind
from modyn_dagster.training.objectives.per_token import PerToken
from modyn_dagster.training.objectives.spans import SpanScheme


class TokenTags(PerToken):
    """The tag of each token, from inputs that hold both: numbers of tokens in the first row, those of their tags in the second.

    The number of a tag is its place in the spec, or ``IGNORED`` for a token without one, such as padding.

    To the measures of tokens it adds the numbers of right, predicted and true spans of each text; zeros where tags name none.

    Args:
        spec: the tags.
        length: tokens of a text.
        source: name of the pipeline, for errors.

    >>> objective = TokenTags(TokenTagsSpec(name="token_tags", tags=["NOUN", "VERB"]), 3, "example")
    >>> objective.pose(torch.tensor([[[5, 6, 0], [0, 1, -100]]]), torch.zeros(1).numpy().astype("uint64"), salt=0)
    (tensor([[5, 6, 0]]), tensor([[   0,    1, -100]]))
    """

    kind: ClassVar[UnlabelledKind] = "tags"
    n_measures = 6

    def __init__(self, spec: TokenTagsSpec, length: int, source: str) -> None:
        super().__init__(len(spec.tags), length)
        self._source = source
        self._scheme = SpanScheme(spec.tags) if spec.name_spans else None

    def shown(self, inputs: Tensor) -> Tensor:
        """Return the tokens, ``[n, length]``, without their tags."""
        return inputs[:, 0]

    def pose(self, inputs: Tensor, keys: KeyArray, salt: int) -> tuple[Tensor, Tensor]:
        """Divide ``[n, 2, length]`` into tokens and tags, ``int64[n, length]`` both.

        Raises ``TrainingError`` naming the first sample with a number that is none of a tag.
        """
        if inputs.is_floating_point():
            raise TrainingError(f"{self._source}: training.loss: tokens and tags are whole numbers, not {inputs.dtype}")
        tags = inputs[:, 1].to(torch.int64)
        strange = (tags != IGNORED) & ((tags < 0) | (tags >= self.n_outputs))
        if strange.any():
            row, place = (int(index[0]) for index in strange.nonzero(as_tuple=True))
            raise TrainingError(
                f"{self._source}: training.loss.tags: token {place + 1} of the sample with key {keys[row]} has tag "
                f"{int(tags[row, place])}, tags are 0 to {self.n_outputs - 1}, and {IGNORED} for none"
            )
        return inputs[:, 0].to(torch.int64), tags

    def measures(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the measures of tokens, then right, predicted and true spans, ``float[n, 6]``."""
        measures = super().measures(outputs, targets)
        if self._scheme is None:
            spans = measures.new_zeros(len(targets), 3)
        else:
            spans = self._scheme.counts(self._named(outputs, targets), targets).to(measures.dtype)
        return torch.cat([measures, spans], 1)
