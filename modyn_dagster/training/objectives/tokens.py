"""Language modelling over rows of token numbers: each token from those before it, or hidden tokens from all others."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from modyn_dagster.errors import TrainingError
from modyn_dagster.keys import KeyArray
from modyn_dagster.reproducibility.randomness import hash_keys, seed_for
from modyn_dagster.spec.tasks.objectives import IGNORED, CausalTokensSpec, MaskedTokensSpec, TokensSpec, UnlabelledKind
from modyn_dagster.training.objectives.per_token import PerToken


class Tokens(PerToken):
    """Prediction of tokens of the vocabulary.

    Args:
        spec: vocabulary and padding.
        length: tokens of a text.
        source: name of the pipeline, for errors.
    """

    kind: ClassVar[UnlabelledKind] = "tokens"

    def __init__(self, spec: TokensSpec, length: int, source: str) -> None:
        super().__init__(spec.vocabulary, length)
        self._vocabulary, self._padding, self._source = spec.vocabulary, spec.padding, source

    def pose(self, inputs: Tensor, keys: KeyArray, salt: int) -> tuple[Tensor, Tensor]:
        """Make the model's tokens and the targets, ``int64[n, length]`` both; ``IGNORED`` where nothing is predicted.

        Raises ``TrainingError`` naming the first sample with a number outside of the vocabulary.
        """
        if inputs.is_floating_point():
            raise TrainingError(f"{self._source}: training.loss: tokens are whole numbers, the inputs are {inputs.dtype}")
        outside = ((inputs < 0) | (inputs >= self._vocabulary)).any(1)
        if outside.any():
            first = int(outside.int().argmax())
            raise TrainingError(
                f"{self._source}: training.loss.vocabulary: the sample with key {keys[first]} has tokens "
                f"{int(inputs[first].min())} to {int(inputs[first].max())}, tokens are 0 to {self._vocabulary - 1}"
            )
        return self._question(inputs.to(torch.int64), keys, salt)

    @abstractmethod
    def _question(self, tokens: Tensor, keys: KeyArray, salt: int) -> tuple[Tensor, Tensor]: ...


class CausalTokens(Tokens):
    """Each token but the first of a text, from the outputs at the place before it. The model must not look ahead.

    >>> objective = CausalTokens(CausalTokensSpec(name="causal_tokens", vocabulary=9), 4, "example")
    >>> objective.pose(torch.tensor([[5, 6, 7, 0]]), np.zeros(1, np.uint64), salt=0)[1]
    tensor([[   6,    7, -100, -100]])
    """

    def __init__(self, spec: CausalTokensSpec, length: int, source: str) -> None:
        super().__init__(spec, length, source)

    def _question(self, tokens: Tensor, keys: KeyArray, salt: int) -> tuple[Tensor, Tensor]:
        following = functional.pad(tokens[:, 1:], (0, 1), value=self._padding)
        return tokens, following.masked_fill(following == self._padding, IGNORED)


class MaskedTokens(Tokens):
    """A share of the tokens of each text, one at least, from a text in which they are hidden.

    A text's draws depend on its key and the salt alone.

    Args:
        spec: vocabulary, share, and what hides a token.
        length: tokens of a text.
        source: name of the pipeline, for errors.

    >>> objective = MaskedTokens(MaskedTokensSpec(name="masked_tokens", vocabulary=9, mask=8, random=0, kept=0), 3, "example")
    >>> objective.pose(torch.tensor([[5, 0, 0]]), np.zeros(1, np.uint64), salt=0)
    (tensor([[8, 0, 0]]), tensor([[   5, -100, -100]]))
    """

    def __init__(self, spec: MaskedTokensSpec, length: int, source: str) -> None:
        super().__init__(spec, length, source)
        self._spec = spec

    def _question(self, tokens: Tensor, keys: KeyArray, salt: int) -> tuple[Tensor, Tensor]:
        spec, shape = self._spec, (len(tokens), tokens.shape[1])
        present = (tokens != self._padding).numpy()
        draws = np.where(present, _uniform(keys, shape[1], seed_for(salt, "hidden")), np.inf)
        # At least the token with the smallest draw.
        hidden = present & ((draws < spec.share) | (draws == draws.min(axis=1, keepdims=True)))
        how = _uniform(keys, shape[1], seed_for(salt, "how"))
        others = (_uniform(keys, shape[1], seed_for(salt, "other")) * spec.vocabulary).astype(np.int64)
        shown = np.where(how < spec.random, others, spec.mask)
        shown = np.where((hidden & (how < 1 - spec.kept)), shown, tokens.numpy())
        targets = np.where(hidden, tokens.numpy(), np.int64(IGNORED))
        return torch.from_numpy(shown), torch.from_numpy(targets)


def _uniform(keys: KeyArray, length: int, salt: int) -> npt.NDArray[np.float64]:
    """Uniform numbers of samples by key, ``float64[n, length]`` in [0, 1)."""
    seeds = hash_keys(keys, salt)
    places = np.arange(length, dtype=np.uint64)
    cells = hash_keys((seeds[:, None] ^ places).reshape(-1), salt).reshape(len(keys), length)
    # The 53 bits of a float64's mantissa.
    return np.asarray((cells >> np.uint64(11)) * 2.0**-53)
